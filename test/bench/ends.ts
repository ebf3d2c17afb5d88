/**
 * `ends`: how long a retirement and a takeover take, by the rows of the family that they revoke, over a broker of its
 * own; what a scanner takes for a row; and what a connect costs beside a large ledger. The proof about connections, which waits for seconds on
 * purpose, is left out.
 *
 * The bare side of an end writes as many rows again with nats.js alone, 64 at once: what revoking them costs at least.
 */
import { randomBytes } from "node:crypto";
import { type Scanner, createScanner } from "../../shared/broker/scanner.ts";
import { createWriter } from "../../shared/broker/write.ts";
import { activate } from "../../shared/ledger/activation.ts";
import { brokerLedgerStore } from "../../shared/ledger/broker-store.ts";
import { readGate } from "../../shared/ledger/moves.ts";
import { beginRetirement, completeRetirement } from "../../shared/ledger/retirement.ts";
import { rootCredentialId } from "../../shared/ledger/root.ts";
import { sealed } from "../../shared/ledger/scan.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import { takeOver } from "../../shared/ledger/takeover.ts";
import { type ScannedStore, scannedStream, scannerConsumer } from "../../shared/protocol/base/names.ts";
import { dotForm, drawLifecycleUid } from "../../shared/protocol/base/principals.ts";
import { type CredentialRow, ledgerKey } from "../../shared/protocol/ledger/rows.ts";
import { OWNER } from "../support/plane-parts.ts";
import { type TestSpace, startSpace } from "../support/space.ts";
import { connectsByLedgerSize } from "./ledger-size.ts";
import { type Report, benchLine } from "./line.ts";

const ROUNDS = 3;
const MANY = 10_000;
const SIZES = [1, 100, MANY] as const;
const AT_ONCE = 64;

export async function ends(report: Report): Promise<void> {
  const space = await startSpace({ auth: "user" });
  try {
    const { nc } = await space.openStore();
    const scan = sealed({ auth: await scanner(space, "ledger"), records: await scanner(space, "records") }, "main");
    const ledger = brokerLedgerStore(nc, createWriter({ nc }), "main", scan);
    for (const size of SIZES) await sized(ledger, size, report);
    await scanned(ledger, report);
  } finally {
    await space.stop();
  }
  const another = await startSpace({ auth: "user" });
  try {
    await connectsByLedgerSize(another, report);
  } finally {
    await another.stop();
  }
}

const scanner = async (space: TestSpace, store: ScannedStore): Promise<Scanner> =>
  createScanner(await space.openStore(), {
    stream: scannedStream("main", store),
    consumer: scannerConsumer("main", store),
  });

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

/** What enumerating a family costs for each row of it: all of them, and one of a large ledger. */
async function scanned(ledger: LedgerStore, report: Report): Promise<void> {
  const { uid, rows } = await born(ledger, MANY, "scanned");
  const gate = await readGate(ledger, uid);
  const after = { key: ledgerKey.gate(uid), revision: gate?.revision ?? 0 };
  const each: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    const took = await timed(() =>
      ledger.scan({ bucket: "auth", family: ledgerKey.credsOf(uid), after }, (_, row) => row.kind),
    );
    each.push((took * 1000) / rows.length);
  }
  const about = { metric: `scan, a row of ${MANY}`, unit: "us" };
  report(benchLine("ends", about, each), about);
}

async function pooled(rows: readonly number[], run: (at: number) => Promise<unknown>): Promise<void> {
  for (let at = 0; at < rows.length; at += AT_ONCE) await Promise.all(rows.slice(at, at + AT_ONCE).map(run));
}

async function timed(run: () => Promise<unknown>): Promise<number> {
  const began = performance.now();
  await run();
  return performance.now() - began;
}
