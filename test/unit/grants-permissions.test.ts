/** From rows to permissions, the size gates, and what the store exports. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { NO_COMMANDS } from "../../shared/grants/client-profiles.ts";
import { storeExports } from "../../shared/grants/exports.ts";
import { MAX_JWT_BYTES, REQUIRED_CONTROL_LINE, REQUIRED_PAYLOAD, checkJwtSize } from "../../shared/grants/gates.ts";
import { pairedDeny, permissionsOf } from "../../shared/grants/permissions.ts";
import { Account, type Row, pub, queueSub, sub } from "../../shared/grants/row.ts";
import { profileRows } from "../../shared/grants/matrix.ts";
import { canonicalDigest } from "../../shared/protocol/base/canonical.ts";
import { overlap } from "../../shared/protocol/base/channels.ts";
import { matches } from "../../shared/protocol/base/channels.ts";
import { patterns, smallChannels } from "../support/arbitraries.ts";
import { refusal } from "../support/refusal.ts";

const front = Account.Front;
const of = (rows: readonly Row[]) => permissionsOf(rows, front);

describe("permissionsOf", () => {
  test("rows of other accounts don't count, and each entry stands once", () => {
    const rows = [
      pub(front, "a", "w"),
      pub(front, "a", "w"),
      pub("store", "b", "w"),
      sub(front, "c", "w"),
      sub("system", "d", "w"),
    ];
    expect(of(rows)).toEqual({ pub: { allow: ["a"], deny: [] }, sub: { allow: ["c"], deny: [] } });
  });

  test("an empty side denies everything: an absent list would allow it", () => {
    expect(of([])).toEqual({ pub: { allow: [], deny: [">"] }, sub: { allow: [], deny: [">"] } });
    expect(of([pub(front, "a", "w")]).sub).toEqual({ allow: [], deny: [">"] });
    expect(of([sub(front, "a", "w")]).pub).toEqual({ allow: [], deny: [">"] });
  });

  test("a queue row allows that queue only, and keeps its paired deny", () => {
    expect(of([queueSub(front, "a.*", "q", "w")]).sub).toEqual({ allow: ["a.* q"], deny: ["a.*.>"] });
  });

  test.each([
    ["a.*", ["a.*.>"]],
    ["*", ["*.>"]],
    ["*.*", ["*.*.>"]],
    ["a", []],
    ["a.>", []],
    ["a.*.b", []],
    ["a*", []],
  ])("the deny beside %s is %j", (entry, deny) => {
    expect(pairedDeny(entry)).toEqual(deny);
  });
});

describe("W9.05 a deny never takes an allowed entry away", () => {
  const reading = (...entries: string[]) => of(entries.map((entry) => sub(front, `c.${entry}`, "w"))).sub;

  test("an entry that another one contains brings no deny of its own", () => {
    expect(reading("team.*", "team.>")).toEqual({ allow: ["c.team.>"], deny: [] });
    expect(reading("*", ">", "a.*")).toEqual({ allow: ["c.>"], deny: [] });
    expect(reading("a", "a.*", "b.*")).toEqual({ allow: ["c.a", "c.a.*", "c.b.*"], deny: ["c.a.*.>", "c.b.*.>"] });
  });

  test.each([
    [["*", "team.>"]],
    [["team.*", "team.a.b"]],
    [["team.*", "team.a.*"]],
    [["*.b", "a.*", "a.b.>"]],
    [["*", "*.*"]],
  ])("%j can't stand in one credential, and both entries are named", (entries) => {
    const { code, message, next } = refusal(() => reading(...entries));
    expect(code).toBe("bad-request");
    expect(entries.filter((entry) => message.includes(`c.${entry}`)).length).toBeGreaterThanOrEqual(2);
    expect(next).toMatch(/ends in >/);
  });

  test("what is accepted allows exactly the channels that the entries match", () => {
    fc.assert(
      fc.property(fc.array(patterns, { minLength: 1, maxLength: 4 }), smallChannels, (entries, channel) => {
        let side: { allow: string[]; deny: string[] };
        try {
          side = reading(...entries);
        } catch {
          return;
        }
        const wanted = entries.some((entry) => matches(entry, channel));
        const got =
          side.allow.some((entry) => matches(entry, `c.${channel}`)) &&
          !side.deny.some((entry) => matches(entry, `c.${channel}`));
        expect({ entries, channel, got }).toEqual({ entries, channel, got: wanted });
      }),
      { numRuns: 2000 },
    );
  });

  test("two patterns overlap when some channel matches both", () => {
    const alphabet = ["a", "b", "z"];
    const universe = [1, 2, 3, 4, 5, 6].flatMap((length) => product(alphabet, length));
    fc.assert(
      fc.property(patterns, patterns, (one, other) => {
        const witness = universe.some((channel) => matches(one, channel) && matches(other, channel));
        expect({ one, other, overlap: overlap(one, other) }).toEqual({ one, other, overlap: witness });
      }),
      { numRuns: 300 },
    );
  });

  function product(letters: readonly string[], length: number): string[] {
    return length === 1
      ? [...letters]
      : product(letters, length - 1).flatMap((head) => letters.map((tail) => `${head}.${tail}`));
  }
});

describe("PD.12 the size gates", () => {
  const none = of([]);

  test("16 KiB is the bound, to the byte", () => {
    expect(MAX_JWT_BYTES).toBe(16_384);
    expect(() => checkJwtSize("x".repeat(16_384), none)).not.toThrow();
    expect(refusal(() => checkJwtSize("x".repeat(16_385), none)).code).toBe("resource-exhausted");
    // Bytes, not characters.
    expect(refusal(() => checkJwtSize("é".repeat(8193), none)).code).toBe("resource-exhausted");
  });

  test("the longest entry is named, cut short, with the number of all", () => {
    const long = `c.${"x".repeat(300)}`;
    const rows = [pub(front, "c.short", "w"), sub(front, long, "w"), sub(front, "c.b", "w")];
    const { message, next, outcome } = refusal(() => checkJwtSize("x".repeat(20_000), of(rows)));
    expect(message).toContain("20000 bytes");
    expect(message).toContain("3 entries");
    expect(message).toContain(`${long.length} characters`);
    expect(message).toContain(`${long.slice(0, 120)}…`);
    expect(message.length).toBeLessThan(400);
    expect(next).toContain("team.>");
    expect(outcome).toBe("not-executed");
  });

  test("what the broker has to be set to has room for the largest credential", () => {
    expect(REQUIRED_CONTROL_LINE).toBe(65_536);
    expect(MAX_JWT_BYTES + 2048).toBeLessThan(REQUIRED_CONTROL_LINE);
    expect(REQUIRED_PAYLOAD).toBeGreaterThan(262_144);
  });

  test("PD.12 an agent with the longest channel and names has reproducible permissions, within the gate", () => {
    const scope = {
      space: "s".repeat(32),
      holder: { principal: { owner: `u_${"a".repeat(26)}`, actor: "b".repeat(64) }, uid: "c".repeat(32) },
      inboxNonce: "d".repeat(64),
      allowSubscribe: ["e".repeat(4096)],
      allowPublish: [],
      role: "f".repeat(64),
      ...NO_COMMANDS,
    };
    const twice = [1, 2].map(() => canonicalDigest(of(profileRows("agent", scope))));
    expect(twice[0]).toBe(twice[1]);
    expect(JSON.stringify(of(profileRows("agent", scope))).length).toBeLessThan(MAX_JWT_BYTES);
  });
});

describe("W9.19 the exports of the store", () => {
  test("they are exactly the list that was measured (H60)", () => {
    const P = "cotal.main";
    expect(
      storeExports("main")
        .map(({ subject }) => subject)
        .toSorted(),
    ).toEqual(
      [
        `${P}.chat.>`,
        `${P}.inst.>`,
        `${P}.svc.>`,
        `${P}.epj.>`,
        `${P}.epe.>`,
        `${P}.epr.>`,
        `${P}.ept.*.*.*.*.schedule`,
        "$KV.cotal_presence_main.>",
        "$O.*.C.*",
        "$O.*.M.*",
        "$JS.API.CONSUMER.MSG.NEXT.DM_main.*",
        "$JS.API.CONSUMER.MSG.NEXT.DLV_main.*",
        "$JS.API.CONSUMER.MSG.NEXT.TASK_main.*",
        "$JS.ACK.DM_main.>",
        "$JS.ACK.DLV_main.>",
        "$JS.ACK.TASK_main.>",
      ].toSorted(),
    );
  });

  test("names are unique, and no export of one space covers another's", () => {
    const main = storeExports("main");
    expect(new Set(main.map(({ name }) => name)).size).toBe(main.length);
    const other = storeExports("main2").map(({ subject }) => subject);
    const shared = main.filter(({ subject }) => other.some((theirs) => overlap(subject, theirs)));
    // A bucket's name is one token: the account keeps spaces apart there, and the grant names the bucket.
    expect(shared.map(({ name }) => name)).toEqual(["xfer-chunks", "xfer-meta"]);
  });

  test("W9.09 an upload crosses only where its object store's own two subjects do, and nothing of the store's answers back", () => {
    const uploads = storeExports("main").filter(({ subject }) => subject.startsWith("$O."));
    expect(uploads.map(({ subject }) => subject)).toEqual(["$O.*.C.*", "$O.*.M.*"]);
    const asked = storeExports("main").filter(({ subject }) => subject.startsWith("$JS.API."));
    expect(asked.filter(({ subject }) => !subject.startsWith("$JS.API.CONSUMER.MSG.NEXT."))).toEqual([]);
  });
});
