/** Presence: every rule of §6 that a reader keeps, and the checks of an instance's own card. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  ConditionCode,
  HEARTBEAT_MS,
  LIVENESS_WINDOW_MS,
  PROTOCOL_VERSION,
  Presence,
  type PresenceRead,
  RESERVED_META_KEYS,
  type RosterEntry,
  checkMeta,
  checkName,
  readPresence,
} from "../../shared/protocol/chat/presence.ts";
import { nearMiss } from "../support/near-miss.ts";
import { refusal } from "../support/refusal.ts";

const KEY = "u_aaaaaaaaaaaaaaaaaaaaaaaaaa.alice";
const NOW = 1_710_000_000_000;

const card = { id: KEY, name: "alice", kind: "agent", role: "planner", protocolVersion: "0.4" } as const;
const record = {
  card,
  status: "working",
  condition: { code: "rate_limit", source: "529", message: "slow down", since: NOW - 10 },
  activity: "reviewing",
  statusSince: NOW - 500,
  activitySince: NOW - 600,
  activeAt: NOW - 5,
  attention: "open",
  lifecycleUid: "abcdefghijklmnopqrstuvwxyz",
  runtime: { id: "r1", startedAt: NOW - 9000, source: "endpoint-process" },
  channelModes: { general: "quiet" },
  environment: "env-1",
  ts: NOW,
} as const;

const at = (value: unknown, now = NOW) => readPresence(KEY, value, now);
const entryOf = (read: PresenceRead): RosterEntry => {
  if (!read.ok) throw new Error(`dropped: ${read.why}`);
  return read.entry;
};

test("W6.02 the default heartbeat is 2 s and the window 6 s", () => {
  expect([HEARTBEAT_MS, LIVENESS_WINDOW_MS]).toEqual([2000, 6000]);
});

test("a whole record is a lawful one, and a reader takes all of it but the opaque", () => {
  expect(Presence.safeParse(record).success).toBe(true);
  expect(entryOf(at(record))).toEqual({
    id: KEY,
    name: "alice",
    kind: "agent",
    role: "planner",
    status: "working",
    live: true,
    activity: "reviewing",
    attention: "open",
    condition: record.condition,
    statusSince: record.statusSince,
    activitySince: record.activitySince,
    activeAt: record.activeAt,
    lifecycleUid: record.lifecycleUid,
    runtime: record.runtime,
    protocolVersion: "0.4",
    ts: NOW,
  });
});

describe("W6.13 a reader drops, and says why", () => {
  const circular: { x?: unknown } = {};
  circular.x = circular;
  test.each<[string, unknown]>([
    ["an id that is not its key", { ...record, card: { ...card, id: "local.bob" } }],
    ["an id in the other form", { ...record, card: { ...card, id: KEY.replace(".", "-") } }],
    ["an id that is a number", { ...record, card: { ...card, id: 7 } }],
    ["no card", { ...record, card: undefined }],
    ["a card that is null", { ...record, card: null }],
    ["no name", { ...record, card: { ...card, name: undefined } }],
    [
      "a name that is an object without text",
      { ...record, card: { ...card, name: { toString: null, valueOf: null } } },
    ],
    ["W6.11 a name of 129 characters", { ...record, card: { ...card, name: "n".repeat(129) } }],
    ["no status", { ...record, status: undefined }],
    ["an unknown status", { ...record, status: "busy" }],
    ["a status that is a list", { ...record, status: ["idle"] }],
    ["no ts", { ...record, ts: undefined }],
    ["a ts that is text", { ...record, ts: "nope" }],
    ["a ts that is null", { ...record, ts: null }],
    ["a ts without end", { ...record, ts: Number.POSITIVE_INFINITY }],
    ["a ts that is no number", { ...record, ts: Number.NaN }],
    ["a role that is an object", { ...record, card: { ...card, role: { toString: null } } }],
    ["a role that is null", { ...record, card: { ...card, role: null } }],
    ["an activity that is an object", { ...record, activity: {} }],
    ["an activity that is null", { ...record, activity: null }],
    ["an attention that is a number", { ...record, attention: 1 }],
    ["a condition that is null", { ...record, condition: null }],
    ["a condition that is text", { ...record, condition: "rate_limit" }],
    ["a condition without a code", { ...record, condition: {} }],
    ["a condition whose code is a number", { ...record, condition: { code: 7 } }],
    ["nothing", undefined],
    ["null", null],
    ["text", "online"],
    ["a list", [record]],
    ["a cycle", circular],
  ])("%s", (_what, value) => {
    const read = at(value);
    expect(read).toMatchObject({ ok: false, key: KEY });
    expect(read.ok ? "" : read.why).toMatch(/\w/);
  });

  test("the reason repeats nothing of the record", () => {
    const secret = "hunter2hunter2";
    for (const poison of [
      { ...record, status: secret },
      { ...record, ts: secret },
      { ...record, card: { ...card, id: secret } },
      { ...record, condition: secret },
    ]) {
      expect(JSON.stringify(at(poison))).not.toContain(secret);
    }
  });

  test("one poisoned record costs no other: each is read by itself, and none throws", () => {
    const good = entryOf(at(record));
    fc.assert(
      fc.property(fc.array(nearMiss([record]), { maxLength: 5 }), (others) => {
        const reads = [...others.slice(0, 2), record, ...others.slice(2)].map((value) => at(value));
        expect(reads).toContainEqual({ ok: true, entry: good });
      }),
    );
  });
});

test("W6.13 whatever a reader keeps can be printed, aged and compared", () => {
  const strings = ["id", "name", "kind", "role", "status", "activity", "attention", "lifecycleUid", "protocolVersion"];
  const numbers = ["statusSince", "activitySince", "activeAt", "ts"];
  const known = new Set([...strings, ...numbers, "live", "condition", "runtime"]);
  fc.assert(
    fc.property(nearMiss([record, { card, status: "idle", ts: NOW }]), fc.integer(), (value, now) => {
      const read = readPresence(KEY, value, now);
      fc.pre(read.ok);
      const entry = entryOf(read) as Record<string, unknown>;
      const condition = (entry["condition"] ?? { code: "" }) as Record<string, unknown>;
      const runtime = (entry["runtime"] ?? {}) as Record<string, unknown>;
      expect(Object.keys(entry).filter((key) => !known.has(key))).toEqual([]);
      const texts = [
        ...strings.map((key) => entry[key]),
        condition["code"],
        condition["source"],
        condition["message"],
        runtime["id"],
      ];
      expect(texts.filter((text) => text !== undefined && typeof text !== "string")).toEqual([]);
      const times = [...numbers.map((key) => entry[key]), condition["since"], runtime["startedAt"]];
      expect(times.filter((time) => time !== undefined && !Number.isFinite(time))).toEqual([]);
    }),
    { numRuns: 3000 },
  );
});

describe("W6.03 offline is derived", () => {
  test("at the window a peer is live, past it offline", () => {
    expect(entryOf(at(record, NOW + 6000))).toMatchObject({ live: true, status: "working" });
    expect(entryOf(at(record, NOW + 6001))).toMatchObject({ live: false, status: "offline" });
    expect(entryOf(readPresence(KEY, record, NOW + 50, 40))).toMatchObject({ live: false });
  });

  test("a clock that runs backwards never ages a peer", () => {
    expect(entryOf(at(record, NOW - 300_000))).toMatchObject({ live: true, status: "working" });
  });

  test("a final offline record is offline however fresh it is", () => {
    expect(entryOf(at({ ...record, status: "offline" }))).toMatchObject({ live: false, status: "offline" });
  });

  test("W6.04 W6.07 whoever is offline has no statusSince and no attention; the runtime stays (W6.08)", () => {
    for (const entry of [entryOf(at({ ...record, status: "offline" })), entryOf(at(record, NOW + 60_000))]) {
      expect(entry.statusSince).toBeUndefined();
      expect(entry.attention).toBeUndefined();
      expect(entry.runtime).toEqual(record.runtime);
      expect(entry.activitySince).toBe(record.activitySince);
    }
  });
});

describe("what a reader doesn't know", () => {
  test("W6.09 a runtime of an unknown source is none, and so is a malformed one", () => {
    const others = [
      { ...record.runtime, source: "x" },
      { ...record.runtime, id: {} },
      { id: "r" },
      null,
      "endpoint-process",
    ];
    expect(others.map((runtime) => entryOf(at({ ...record, runtime })).runtime)).toEqual(others.map(() => undefined));
  });

  test("W6.08 a runtime is read as its three fields: no pid, host or path comes through", () => {
    const runtime = { ...record.runtime, pid: 1, host: "h", cwd: "/" };
    expect(entryOf(at({ ...record, runtime })).runtime).toEqual(record.runtime);
  });

  test("W6.06 a condition of an unknown code is shown; its fields come verbatim or not at all", () => {
    const condition = { code: "new_code", source: 5, message: { toString: null }, since: "x", extra: 1 };
    expect(entryOf(at({ ...record, condition })).condition).toEqual({ code: "new_code" });
    expect(entryOf(at({ ...record, condition: undefined })).condition).toBeUndefined();
  });

  test("W6.06 the code set is the closed one of §6", () => {
    expect(ConditionCode.options).toEqual(
      "rate_limit overloaded auth billing budget context model request server retrying approval input failed".split(
        " ",
      ),
    );
  });

  test("W6.09 W11.01 environment is opaque, and unknown fields and kinds are ignored", () => {
    const wide = { ...record, environment: { any: ["thing"] }, future: 1, card: { ...card, kind: "drone", x: 1 } };
    expect(entryOf(at(wide))).toMatchObject({ kind: "agent", live: true });
    expect(entryOf(at(wide))).not.toHaveProperty("environment");
  });

  test("W6.12 a peer that names no version has none, and we name ours", () => {
    const { protocolVersion: _, ...old } = card;
    expect(entryOf(at({ ...record, card: old })).protocolVersion).toBeUndefined();
    expect(PROTOCOL_VERSION).toBe("0.4");
  });

  test("dates that are no numbers are left out", () => {
    const times = { statusSince: "x", activitySince: null, activeAt: {} };
    const entry = entryOf(at({ ...record, ...times }));
    expect([entry.statusSince, entry.activitySince, entry.activeAt]).toEqual([undefined, undefined, undefined]);
  });
});

describe("W6.11 the card", () => {
  test("128 characters of one line are a name", () => {
    expect(checkName("n".repeat(128))).toHaveLength(128);
    expect(checkName("Ana María 名前 😀")).toBe("Ana María 名前 😀");
  });

  test.each(["", "n".repeat(129), "a\nb", "a\u0000", "a\u001b[2J", "a\u2028b", "\ud800"])("%j is no name", (name) => {
    expect(refusal(() => checkName(name)).code).toBe("bad-request");
  });

  test("a name that was accepted is read back by every reader", () => {
    fc.assert(
      fc.property(fc.string({ unit: "grapheme", minLength: 1, maxLength: 60 }), (name) => {
        fc.pre(!/[\p{Cc}\u2028\u2029]/u.test(name) && name.length <= 128);
        expect(entryOf(at({ ...record, card: { ...card, name: checkName(name) } })).name).toBe(name);
      }),
    );
  });

  test("W11.04 meta has the reserved flat keys, which are text, and reverse-DNS ones", () => {
    expect(() => checkMeta({ connector: "x", terminal: "none", "com.acme.region": { any: 1 } })).not.toThrow();
    expect(RESERVED_META_KEYS).toHaveLength(11);
    for (const meta of [
      { model: 5 },
      { region: "eu" },
      { "": 1 },
      { Host: "h" },
      { "com.": 1 },
      { constructor: "x" },
    ]) {
      expect(refusal(() => checkMeta(meta)).code).toBe("bad-request");
    }
  });
});
