/**
 * `ends`: how long a retirement and a takeover take, by the rows of the family that they revoke, over a broker of its
 * own; and what a connect's reads cost beside a large ledger. The proof about connections, which waits for seconds on
 * purpose, is left out.
 *
 * The bare side of an end writes as many rows again with nats.js alone, 64 at once: what revoking them costs at least.
 */
import { randomBytes } from "node:crypto";
import { createAuthority } from "../../services/auth/plane/authority.ts";
import { createWriter } from "../../shared/broker/write.ts";
import { activate } from "../../shared/ledger/activation.ts";
import { brokerLedgerStore } from "../../shared/ledger/broker-store.ts";
import { beginRetirement, completeRetirement } from "../../shared/ledger/retirement.ts";
import { rootCredentialId } from "../../shared/ledger/root.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import { takeOver } from "../../shared/ledger/takeover.ts";
import { dotForm, drawLifecycleUid } from "../../shared/protocol/base/principals.ts";
import { type CredentialRow, ledgerKey } from "../../shared/protocol/ledger/rows.ts";
import { OWNER, SIGN_IN, memoryParts } from "../support/plane-parts.ts";
import { startSpace } from "../support/space.ts";
import { type Report, benchLine, percentile } from "./line.ts";

const ROUNDS = 3;
const SIZES = [1, 100, 10_000] as const;
const AT_ONCE = 64;
const CHECKS = 500;
const LEDGERS = [100, 20_000] as const;

export async function ends(report: Report): Promise<void> {
  const space = await startSpace({ auth: "user" });
  try {
    const nc = await space.store();
    const ledger = brokerLedgerStore(nc, createWriter({ nc }), "main");
    for (const size of SIZES) await sized(ledger, size, report);
    await connects(ledger, report);
  } finally {
    await space.stop();
  }
}

async function sized(ledger: LedgerStore, size: number, report: Report): Promise<void> {
  const retired: number[] = [];
  const taken: number[] = [];
  const bare: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const one = await born(ledger, size, `r${size}_${round}`);
    bare.push(await timed(() => pooled(one.rows, (row) => ledger.create("auth", `cred.${one.uid}.again${row}`, {}))));
    const other = await born(ledger, size, `t${size}_${round}`);
    const takeover = { principal: other.p, uid: other.uid, opId: `take-${other.uid}`, fromEpoch: 1 };
    taken.push(await timed(() => takeOver(ledger, takeover, () => Promise.resolve())));
    const ended = await born(ledger, size, `e${size}_${round}`);
    retired.push(await timed(() => retire(ledger, ended)));
  }
  const about = (metric: string) => ({ metric, unit: "ms", note: "without the proof about connections" });
  for (const [metric, ours] of [
    ["retire", retired],
    ["takeover", taken],
  ] as const) {
    report(benchLine("ends", about(`${metric} ${size} rows`), ours, bare), about(`${metric} ${size} rows`));
  }
}

type Born = {
  readonly p: { readonly owner: string; readonly actor: string };
  readonly uid: string;
  readonly rows: readonly number[];
};

async function born(ledger: LedgerStore, size: number, actor: string): Promise<Born> {
  const p = { owner: OWNER, actor };
  const uid = drawLifecycleUid(randomBytes);
  const request = {
    opId: `b-${uid}`,
    principal: p,
    requestDigest: "d",
    managerInstance: "m",
    uid,
    now: 1,
    random: randomBytes,
  };
  await activate(ledger, request, () => Promise.resolve());
  const rows = Array.from({ length: size }, (_, at) => at);
  await pooled(rows, (at) => {
    const credentialId = rootCredentialId(uid, at);
    const row: CredentialRow = {
      credentialId,
      holderPrincipal: dotForm(p),
      lifecycleUid: uid,
      sourceChain: ["root"],
      state: "active",
      exp: 0,
    };
    return ledger.create("auth", ledgerKey.cred(uid, credentialId), row);
  });
  return { p, uid, rows };
}

async function retire(ledger: LedgerStore, { p, uid }: Born): Promise<void> {
  const { opId } = await beginRetirement(ledger, p, `retire-${uid}`, uid);
  await completeRetirement(ledger, p, uid, opId, {}, () => Promise.resolve());
}

/** The reads of one connect, in a small ledger and in a large one. */
async function connects(ledger: LedgerStore, report: Report): Promise<void> {
  const authority = createAuthority(memoryParts(ledger, { now: Date.now }));
  const p = { owner: OWNER, actor: "connecting" };
  const { uid, credentialId } = await authority.enrol(p, SIGN_IN);
  const act = { ...p, lifecycleUid: uid, credentialId };
  for (const size of LEDGERS) {
    await born(ledger, size, `filler${size}`);
    const each: number[] = [];
    for (let at = 0; at < CHECKS; at += 1) each.push(await timed(() => authority.check(act)));
    const about = { metric: `check p50, ${size} rows more`, unit: "ms", aim: "no growth" };
    report(benchLine("ends", about, [percentile(each, 0.5)]), about);
  }
}

async function pooled(rows: readonly number[], run: (at: number) => Promise<unknown>): Promise<void> {
  for (let at = 0; at < rows.length; at += AT_ONCE) await Promise.all(rows.slice(at, at + AT_ONCE).map(run));
}

async function timed(run: () => Promise<unknown>): Promise<number> {
  const began = performance.now();
  await run();
  return performance.now() - began;
}
