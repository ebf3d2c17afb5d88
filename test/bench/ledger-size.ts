/**
 * What a ledger's size does to a connect: real sign-ins and real connects, through the auth service's callout, with ever
 * more rows of other lifecycles beside (`ends`).
 *
 * The rows are those that a space of that age has: credential rows of as many lifecycles as there are hundreds of rows.
 */
import { randomBytes } from "node:crypto";
import { createInbox, type NatsConnection } from "@nats-io/transport-node";
import { kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { drawLifecycleUid } from "../../shared/protocol/base/principals.ts";
import { spaceNames } from "../../shared/protocol/base/names.ts";
import type { ExchangeAnswer } from "../../shared/protocol/endpoint/exchange-shapes.ts";
import { type CredentialRow, ledgerKey } from "../../shared/protocol/ledger/rows.ts";
import { rootCredentialId } from "../../shared/ledger/root.ts";
import { startAuthService } from "../support/auth-service.ts";
import { AS_LAUNCHED } from "../support/collected.ts";
import { OWNER } from "../support/plane-parts.ts";
import type { TestSpace } from "../support/space.ts";
import { type Report, benchLine, percentile } from "./line.ts";

const SIZES = [100, 100_000, 1_000_000] as const;
const ROWS_OF_ONE = 100;
const UNCONFIRMED = 2048;
/** Connects of one look; one more look comes first and is thrown away. */
const CONNECTS = 300;
const LOOKS = 3;
const UNLIMITED = "1000000";

/** Leaves its rows behind: whoever calls it ends the space. */
export async function connectsByLedgerSize(space: TestSpace, report: Report): Promise<void> {
  const nc = await space.store();
  const service = await startAuthService(space, {
    env: {
      ...AS_LAUNCHED,
      COTAL_AUTH_CONNECTS_PER_ACTOR: UNLIMITED,
      COTAL_AUTH_CONNECTS_PER_OWNER: UNLIMITED,
      COTAL_AUTH_CONNECTS_PER_HOST: UNLIMITED,
    },
  });
  try {
    const once = async (signedIn: ExchangeAnswer): Promise<number> => {
      const began = performance.now();
      const connection = await service.connect(signedIn);
      const took = performance.now() - began;
      await connection.close();
      return took;
    };
    const look = async (): Promise<number> => {
      // Bearers live for minutes.
      const signedIn = await service.signIn("connecting");
      const each: number[] = [];
      for (let at = 0; at < CONNECTS; at += 1) each.push(await once(signedIn));
      return percentile(each, 0.5);
    };
    let rows = 0;
    let first: number[] = [];
    for (const size of SIZES) {
      const began = performance.now();
      await fill(nc, size - rows);
      const seconds = (performance.now() - began) / 1000;
      rows = size;
      await look();
      const found: number[] = [];
      for (let at = 0; at < LOOKS; at += 1) found.push(await look());
      if (first.length === 0) first = found;
      const connect = { metric: `connect p50, ${size} rows`, unit: "ms", note: `filled in ${seconds.toFixed(1)} s` };
      report(benchLine("ends", connect, found), connect);
      if (size === SIZES[0]) continue;
      const ratio = { metric: `connect_ledger_ratio ${size}`, unit: "x", aim: "at most 1.2" };
      report(
        benchLine(
          "ends",
          ratio,
          found.map((one, at) => one / (first[at] ?? one)),
        ),
        ratio,
      );
    }
  } finally {
    await service.stop();
  }
}

/** So many credential rows, pipelined: each is acknowledged, and so many may be under way. */
async function fill(nc: NatsConnection, count: number): Promise<void> {
  const { auth } = spaceNames("main").bucket;
  const reply = createInbox();
  let sent = 0;
  let acked = 0;
  let uid = "";
  const { promise: done, resolve } = Promise.withResolvers<void>();
  const send = (): void => {
    while (sent < count && sent - acked < UNCONFIRMED) {
      if (sent % ROWS_OF_ONE === 0) uid = drawLifecycleUid(randomBytes);
      const credentialId = rootCredentialId(uid, sent);
      const row: CredentialRow = {
        credentialId,
        holderPrincipal: `${OWNER}.filler`,
        lifecycleUid: uid,
        sourceChain: ["root"],
        state: "revoked",
        exp: 0,
      };
      nc.publish(kvKey(auth, ledgerKey.cred(uid, credentialId)), JSON.stringify(row), { reply });
      sent += 1;
    }
  };
  const subscription = nc.subscribe(reply, {
    callback: () => {
      acked += 1;
      if (acked === count) resolve();
      send();
    },
  });
  send();
  if (count > 0) await done;
  subscription.unsubscribe();
}
