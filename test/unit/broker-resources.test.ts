/**
 * The streams and buckets of a space against a table written by hand from §8 and supplement H.
 *
 * The table is the contract's; it is not generated from the code that it checks.
 */
import { describe, expect, test } from "vitest";
import {
  type StreamSpec,
  dlvConsumer,
  dmConsumer,
  roleConsumer,
  spaceStreams,
  transferStream,
} from "../../shared/broker/resources.ts";
import { refusal } from "../support/refusal.ts";

const UID = "abcdefghijklmnopqrstuvwx23";
const alice = { owner: "u_aaaaaaaaaaaaaaaaaaaaaaaaaa", actor: "alice" };

const all = spaceStreams("team", { replicas: 3 });

function named(name: string): StreamSpec {
  const found = all.find((spec) => spec.name === name);
  if (found === undefined) throw new Error(`no ${name}`);
  return found;
}

/** name, subjects, and the settings that differ from "limits, file, no limit, nothing allowed". */
const TABLE: readonly (readonly [string, readonly string[], Partial<StreamSpec>])[] = [
  ["CHAT_team", ["cotal.team.chat.>"], { max_msgs_per_subject: 1000, allow_direct: true, discard: "old" }],
  ["DM_team", ["cotal.team.inst.>"], { discard: "new" }],
  ["TASK_team", ["cotal.team.svc.>"], { retention: "workqueue", discard: "new" }],
  [
    "DLV_team",
    ["cotal.team.dlv.>", "cotal.team.dlvpos.*"],
    { max_msgs_per_subject: 1000, discard: "old", duplicate_window: 7200e9, allow_atomic: true, allow_msg_ttl: true },
  ],
  ["EPJ_team", ["cotal.team.epj.>"], { discard: "new", duplicate_window: 100e6 }],
  ["EPF_team", ["cotal.team.epf.>"], { discard: "new", allow_direct: true, deny_delete: true, deny_purge: true }],
  ["EPE_team", ["cotal.team.epe.>"], { discard: "old", max_age: 7 * 86400e9 }],
  ["EPR_team", ["cotal.team.epr.>"], { discard: "new", max_age: 86_400e9 }],
  ["EPT_REQ_team", ["cotal.team.ept.*.*.*.*.schedule"], { discard: "new" }],
  [
    "EPT_team",
    ["cotal.team.ept.*.*.*.*.armed", "cotal.team.ept.*.*.*.*.fire"],
    { discard: "old", allow_msg_schedules: true, allow_rollup_hdrs: true, allow_msg_ttl: true },
  ],
  ["EPW_team", ["cotal.team.epw.>"], { retention: "workqueue", discard: "new" }],
  [
    "EPC_team",
    ["cotal.team.epc.*"],
    {
      discard: "new",
      discard_new_per_subject: true,
      max_msgs_per_subject: 1,
      allow_direct: true,
      deny_delete: true,
      deny_purge: true,
    },
  ],
  ["WFJ_team", ["cotal.team.wfj.*"], { discard: "new", deny_delete: true }],
  [
    "KV_cotal_presence_team",
    ["$KV.cotal_presence_team.>"],
    {
      max_age: 6e9,
      duplicate_window: 6e9,
      max_msg_size: 65_536,
      allow_direct: true,
      deny_delete: true,
      max_msgs_per_subject: 1,
      discard: "new",
    },
  ],
];

const REST: Partial<StreamSpec> = {
  retention: "limits",
  storage: "file",
  discard_new_per_subject: false,
  max_age: 0,
  max_msgs: -1,
  max_msgs_per_subject: -1,
  max_bytes: -1,
  max_msg_size: -1,
  duplicate_window: 120e9,
  num_replicas: 3,
  no_ack: false,
  allow_direct: false,
  deny_delete: false,
  deny_purge: false,
  allow_rollup_hdrs: false,
  allow_msg_ttl: false,
  allow_msg_schedules: false,
  allow_msg_counter: false,
  allow_atomic: false,
  allow_batched: false,
};

describe("PH.02 the streams of supplement H, as data", () => {
  test.each(TABLE)("W8.01: %s", (name, subjects, settings) => {
    expect(named(name)).toMatchObject({ ...REST, subjects, ...settings });
  });

  test("PH.02: these streams and buckets, each once, and no other", () => {
    const buckets = [
      "presence",
      "channels",
      "membership",
      "anycast",
      "records",
      "auth",
      "sessions",
      "issued",
      "accepted",
      "admission",
      "acl",
      "members",
      "leases",
    ].map((bucket) => `KV_cotal_${bucket}_team`);
    const streams = TABLE.map(([name]) => name).filter((name) => !name.startsWith("KV_"));
    expect(all.map(({ name }) => name).toSorted()).toEqual([...streams, ...buckets].toSorted());
  });

  test("W8.18: every bucket keeps one value a key, in files, without byte reservation or rollup; a marker TTL is in one only", () => {
    const buckets = all.filter(({ name }) => name.startsWith("KV_"));
    expect(buckets).toHaveLength(13);
    for (const bucket of buckets) {
      expect(bucket).toMatchObject({
        subjects: [`$KV.${bucket.name.slice("KV_".length)}.>`],
        max_msgs_per_subject: 1,
        discard: "new",
        storage: "file",
        max_bytes: -1,
        allow_rollup_hdrs: false,
        allow_msg_ttl: bucket.name === "KV_cotal_auth_team",
        adjustable: [],
      });
    }
  });

  test("W8.18: values of membership and anycast are bounded, and their rows have no age", () => {
    expect(named("KV_cotal_membership_team")).toMatchObject({ max_msg_size: 262_144, max_age: 0 });
    expect(named("KV_cotal_anycast_team")).toMatchObject({ max_msg_size: 65_536, max_age: 0 });
    expect(named("KV_cotal_channels_team")).toMatchObject({ max_age: 0 });
  });

  test("W8.17: direct gets exactly where the contract lets reads be stale", () => {
    const direct = all.filter(({ allow_direct }) => allow_direct).map(({ name }) => name.replace(/_team$/, ""));
    expect(direct.toSorted()).toEqual(
      [
        "CHAT",
        "EPC",
        "EPF",
        "KV_cotal_accepted",
        "KV_cotal_acl",
        "KV_cotal_anycast",
        "KV_cotal_channels",
        "KV_cotal_leases",
        "KV_cotal_members",
        "KV_cotal_membership",
        "KV_cotal_presence",
        "KV_cotal_records",
      ].toSorted(),
    );
  });

  test("PH.02: only DLV, EPT and the auth bucket, which no client publishes into, allow headers that reach further", () => {
    const loose = all
      .filter((spec) => spec.allow_rollup_hdrs || spec.allow_msg_ttl || spec.allow_msg_schedules || spec.allow_atomic)
      .map(({ name }) => name);
    expect(loose).toEqual(["DLV_team", "EPT_team", "KV_cotal_auth_team"]);
  });

  test("PH.03 PH.05: protected rows and facts leave at a horizon only: no eviction, TTL, rollup, purge or delete", () => {
    const kept = [
      "EPC_team",
      "EPF_team",
      ...["issued", "accepted", "admission", "records"].map((b) => `KV_cotal_${b}_team`),
    ];
    const never = {
      max_age: 0,
      max_msgs: -1,
      max_bytes: -1,
      discard: "new",
      allow_msg_ttl: false,
      allow_rollup_hdrs: false,
      deny_purge: true,
    };
    for (const name of kept) expect(named(name)).toMatchObject({ ...never, deny_delete: true });
    // H24: families of this bucket that may be pruned leave under a marker, and the marker has a life.
    expect(named("KV_cotal_auth_team")).toMatchObject({ ...never, deny_delete: true, allow_msg_ttl: true });
  });

  test("W8.02: the history limits, and no field of a protected stream but its age, are the operator's", () => {
    const adjustable = Object.fromEntries(
      all.filter((s) => s.adjustable.length > 0).map((s) => [s.name, s.adjustable]),
    );
    const limit = ["max_age", "max_msgs_per_subject"];
    expect(adjustable).toEqual({
      CHAT_team: limit,
      DM_team: limit,
      DLV_team: limit,
      EPE_team: limit,
      EPJ_team: ["max_age"],
      EPF_team: ["max_age"],
      EPR_team: ["max_age"],
      EPT_REQ_team: ["max_age"],
      EPT_team: ["max_age"],
    });
  });

  test("the transfer bucket has the stock object store's layout", () => {
    expect(transferStream("team", UID, { replicas: 1 })).toMatchObject({
      ...REST,
      name: `OBJ_cotal_xfer_team_${UID}`,
      subjects: [`$O.cotal_xfer_team_${UID}.C.>`, `$O.cotal_xfer_team_${UID}.M.>`],
      num_replicas: 1,
      discard: "new",
      allow_direct: true,
      allow_rollup_hdrs: true,
    });
  });
});

describe("W8.23 durables carry the lifecycle in their name, and start behind its frontier", () => {
  const shared = {
    ack_policy: "explicit",
    ack_wait: 60e9,
    max_deliver: -1,
    max_batch: 1,
    max_expires: 30e9,
    max_ack_pending: 256,
  };

  test("W8.05: dm_ starts at the given sequence", () => {
    const { stream, name, config } = dmConsumer("team", alice, UID, 1);
    expect({ stream, name }).toEqual({ stream: "DM_team", name: `dm_${alice.owner}-alice-${UID}` });
    expect(config).toMatchObject({
      ...shared,
      durable_name: name,
      filter_subject: `cotal.team.inst.${alice.owner}.alice.>`,
      deliver_policy: "by_start_sequence",
      opt_start_seq: 1,
      max_waiting: 64,
    });
  });

  test("W8.23: another lifecycle of the same principal has another durable and subject", () => {
    const next = "zzzzzzzzzzzzzzzzzzzzzzzz77";
    expect(dmConsumer("team", alice, next, 9).name).toBe(`dm_${alice.owner}-alice-${next}`);
    expect(dlvConsumer("team", alice, UID).config.filter_subject).toBe(`cotal.team.dlv.${alice.owner}.alice.${UID}`);
    expect(dlvConsumer("team", alice, next).config.filter_subject).toBe(`cotal.team.dlv.${alice.owner}.alice.${next}`);
  });

  test("dlv_ delivers all, or starts where a restore says", () => {
    const { stream, name, config } = dlvConsumer("team", alice, UID);
    expect({ stream, name }).toEqual({ stream: "DLV_team", name: `dlv_${alice.owner}-alice-${UID}` });
    expect(config).toMatchObject({ ...shared, deliver_policy: "all" });
    expect(config).not.toHaveProperty("opt_start_seq");
    expect(dlvConsumer("team", alice, UID, 7).config).toMatchObject({
      deliver_policy: "by_start_sequence",
      opt_start_seq: 7,
    });
  });

  test("W8.06: svc_ is the role's, whoever holds it", () => {
    const { stream, name, config } = roleConsumer("team", "review");
    expect({ stream, name }).toEqual({ stream: "TASK_team", name: "svc_review" });
    expect(config).toMatchObject({ ...shared, filter_subject: "cotal.team.svc.review.>", deliver_policy: "all" });
  });

  test.each([0, -1, 1.5, Number.NaN, 2 ** 53])("W8.05: a start of %s is refused", (start) => {
    expect(refusal(() => dmConsumer("team", alice, UID, start)).code).toBe("bad-request");
  });
});
