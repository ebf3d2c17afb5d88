/** What a trace costs the store: as much for a channel of two thousand segments as for any other. */
import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, expect, test } from "vitest";
import { owedOf } from "../../services/delivery/proof/owed.ts";
import { kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { spaceNames } from "../../shared/protocol/base/names.ts";
import { drawLifecycleUid, principal } from "../../shared/protocol/base/principals.ts";
import { ledgerKey } from "../../shared/protocol/ledger/rows.ts";
import { type FanoutRig, OWNER, startFanoutRig } from "../support/fanout-rig.ts";

let rig: FanoutRig;
beforeAll(async () => {
  rig = await startFanoutRig();
});
afterAll(() => rig.stop());

const { members } = spaceNames("main").bucket;
const segments = (count: number): string => Array.from({ length: count }, () => "a").join(".");
const DEEP = segments(2000);

test("whose families hold a deep channel are found with a few questions, and nobody else", async () => {
  const who = principal(OWNER, "deep");
  const patterns = [DEEP, `${segments(1999)}.>`, `${segments(3)}.>`, "a.>", "b.>", `${segments(1998)}.b`, "a"];
  const uids = patterns.map(() => drawLifecycleUid(randomBytes));
  for (const [n, pattern] of patterns.entries()) {
    const key = ledgerKey.member(who, uids[n] ?? "", pattern);
    const row = { v: 1, pattern, state: "joined", join: 0 };
    await rig.nc.request(kvKey(members, key), JSON.stringify(row));
  }
  const cost = async (channel: string) => {
    const before = rig.nc.stats().outMsgs;
    const { owed, whole } = await owedOf(rig.nc, "main", { channel, seq: 1, mentions: [] });
    const found = uids.flatMap((uid, n) => (owed.some(({ lifecycle }) => lifecycle.uid === uid) ? [patterns[n]] : []));
    return { found, whole, asked: rig.nc.stats().outMsgs - before };
  };
  const deep = await cost(DEEP);
  expect(deep).toMatchObject({ found: patterns.slice(0, 4), whole: true });
  expect(deep.asked).toBeLessThan(10);
  expect(await cost(segments(4))).toMatchObject({ found: [`${segments(3)}.>`, "a.>"], whole: true });
});
