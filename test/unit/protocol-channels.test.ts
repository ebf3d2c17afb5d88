/** The channel algebra against its own definition; test/broker/ compares it with the broker. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  channelPattern,
  concreteChannel,
  containedIn,
  contains,
  covers,
  isChannel,
  minimalList,
  isChannelPattern,
  isConcrete,
  isFamily,
  matches,
  sanitizeToken,
} from "../../shared/protocol/base/channels.ts";
import { patterns, smallChannels } from "../support/arbitraries.ts";
import { refusal } from "../support/refusal.ts";

describe("W3.02 sanitising", () => {
  test.each([
    ["a b.c", "a_b.c"],
    ["#general", "general"],
    ["##general", "_general"],
    ["Team.Back-end_2", "Team.Back-end_2"],
    ["café", "caf_"],
    ["a*.b>", "a_.b_"],
    ["a/b\\c", "a_b_c"],
    ["a\tb\n", "a_b_"],
    ["$JS", "_JS"],
  ])("%j becomes %j", (typed, wire) => {
    expect(concreteChannel(typed)).toBe(wire);
  });

  test("it always gives a lawful channel, keeps the number of segments, and changes nothing twice", () => {
    const segment = fc.string({ minLength: 1, maxLength: 6, unit: "binary" }).filter((text) => !/[.#]/.test(text));
    fc.assert(
      fc.property(fc.array(segment, { minLength: 1, maxLength: 4 }), (segments) => {
        const typed = segments.join(".");
        fc.pre(segments.every((one) => one !== "*" && one !== ">"));
        const wire = concreteChannel(typed);
        expect(isChannel(wire)).toBe(true);
        expect(wire.split(".")).toHaveLength(segments.length);
        expect(concreteChannel(wire)).toBe(wire);
        expect(sanitizeToken(sanitizeToken(typed))).toBe(sanitizeToken(typed));
      }),
    );
  });
});

describe("W3.05 what a channel is", () => {
  test("4096 characters are allowed, and 4097 are refused", () => {
    const longest = `${"a".repeat(2047)}.${"b".repeat(2048)}`;
    expect(longest).toHaveLength(4096);
    expect(concreteChannel(longest)).toBe(longest);
    expect(channelPattern(`#${longest}`)).toBe(longest);
    expect(isChannel(longest)).toBe(true);
    expect(isChannelPattern(longest)).toBe(true);
    const longer = `${longest}b`;
    expect(refusal(() => concreteChannel(longer)).code).toBe("bad-request");
    expect(refusal(() => channelPattern(longer)).code).toBe("bad-request");
    expect(refusal(() => channelPattern(longer)).message.length).toBeLessThan(200);
    expect(isChannel(longer)).toBe(false);
    expect(isChannelPattern(longer)).toBe(false);
  });

  test.each(["", "#", ".", "a.", ".a", "a..b", "..."])("%j has an empty part", (text) => {
    expect(refusal(() => channelPattern(text)).code).toBe("bad-request");
    expect(isChannel(text)).toBe(false);
    expect(isChannelPattern(text)).toBe(false);
  });

  test.each(["*", ">", "a.*", "*.a", "a.>", "*.>"])("%j is a pattern and no publish target", (text) => {
    expect(channelPattern(text)).toBe(text);
    expect(isChannelPattern(text)).toBe(true);
    expect(isConcrete(text)).toBe(false);
    expect(isChannel(text)).toBe(false);
    expect(refusal(() => concreteChannel(text)).code).toBe("bad-request");
  });

  test.each([">.a", "a.>.b", "a.>.>"])("%j has its > in the middle", (text) => {
    expect(refusal(() => channelPattern(text)).code).toBe("bad-request");
    expect(isChannelPattern(text)).toBe(false);
  });

  test.each(["a b", "a*", "**", ">>", "a\u0000", "é", "a#"])("%j is not lawful on the wire as it stands", (text) => {
    expect(isChannel(text)).toBe(false);
    expect(isChannelPattern(text)).toBe(false);
  });
});

test.each([
  ["team.>", "team", false],
  ["team.>", "team.a", true],
  ["team.>", "team.a.b", true],
  ["team.>", "teamx", false],
  ["team.*", "team.a", true],
  ["team.*", "team.a.b", false],
  ["team.*", "team", false],
  [">", "team", true],
  ["*", "team", true],
  ["*", "team.a", false],
  ["*.a", "team.a", true],
  ["*.>", "team", false],
  ["*.>", "team.a", true],
  ["team", "team", true],
  ["team", "Team", false],
])("W3.05 %s matches %s: %s", (pattern, channel, answer) => {
  expect(matches(pattern, channel)).toBe(answer);
});

test.each([
  ["perm.*", "perm.>", false],
  ["perm.>", "perm.*", true],
  ["perm.*", "perm.*", true],
  ["perm.>", "perm.>", true],
  ["perm.>", "perm", false],
  [">", ">", true],
  ["*", ">", false],
  [">", "*", true],
  ["*.>", ">", false],
  ["*.>", "a.>", true],
  ["a.>", "a.*.>", true],
  ["a.*.>", "a.>", false],
  ["a", "*", false],
  ["*", "a", true],
])("W9.04 %s contains %s: %s", (outer, inner, answer) => {
  expect(contains(outer, inner)).toBe(answer);
});

test("W9.04 containing is matching all that the other matches, and no less", () => {
  // Depth 6 over an alphabet with a segment no pattern names: for patterns of up to 5 segments
  // there is a witness here whenever one exists.
  const universe: string[] = [];
  for (let level: string[] = [""], depth = 0; depth < 6; depth += 1) {
    level = level.flatMap((head) => ["a", "b", "z"].map((tail) => (head === "" ? tail : `${head}.${tail}`)));
    universe.push(...level);
  }
  fc.assert(
    fc.property(patterns, patterns, (outer, inner) => {
      const witness = universe.find((channel) => matches(inner, channel) && !matches(outer, channel));
      expect({ outer, inner, witness, contains: contains(outer, inner) }).toEqual({
        outer,
        inner,
        witness,
        contains: witness === undefined,
      });
    }),
    { numRuns: 500 },
  );
});

test("W9.04 containing is reflexive and transitive, and a concrete channel is contained where it is matched", () => {
  fc.assert(
    fc.property(patterns, patterns, patterns, smallChannels, (a, b, c, channel) => {
      expect(contains(a, a)).toBe(true);
      expect(contains(a, b) && contains(b, c) && !contains(a, c)).toBe(false);
      expect(contains(a, channel)).toBe(matches(a, channel));
    }),
    { numRuns: 500 },
  );
});

test("W9.04 one entry has to contain the whole pattern", () => {
  expect(containedIn(["team.a.>", "team.b.>"], "team.>")).toBeUndefined();
  expect(containedIn(["perm.*"], "perm.>")).toBeUndefined();
  expect(containedIn(["x", "team.>", ">"], "team.a.>")).toBe("team.>");
  expect(containedIn([], "team")).toBeUndefined();
});

test("W3.05 an ACL covers a channel when any entry matches it", () => {
  expect(covers(["team", "team.>"], "team")).toBe(true);
  expect(covers(["team.>"], "team")).toBe(false);
  expect(covers([], "team")).toBe(false);
  fc.assert(
    fc.property(fc.array(patterns, { maxLength: 4 }), smallChannels, (acl, channel) => {
      expect(covers(acl, channel)).toBe(acl.map((entry) => matches(entry, channel)).includes(true));
    }),
  );
});

describe("W7.14 families", () => {
  test.each(["team.>", "a.b.c.>"])("%s is one", (pattern) => expect(isFamily(pattern)).toBe(true));
  test.each([">", "team", "team.*", "*.>", "team.*.>", "a.>.b", ""])("%j is none", (pattern) => {
    expect(isFamily(pattern)).toBe(false);
  });

  test("a family never covers its own prefix", () => {
    fc.assert(
      fc.property(smallChannels, (channel) => {
        const family = `${channel}.>`;
        expect(isFamily(family)).toBe(true);
        expect(matches(family, channel)).toBe(false);
        expect(contains(family, channel)).toBe(false);
        expect(matches(family, `${channel}.x`)).toBe(true);
      }),
    );
  });
});

describe("minimalList", () => {
  test("one set of channels has one spelling, and covers what the list covered", () => {
    expect(minimalList(["z", "team.a", "team.>", "z", "team"])).toEqual(["team", "team.>", "z"]);
    expect(minimalList(["a.*", "a.>"])).toEqual(["a.>"]);
    expect(minimalList([])).toEqual([]);
  });
});
