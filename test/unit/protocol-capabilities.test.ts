/** Named capabilities: what one may look like, what is granted, what contains what, and how rows hold them. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  AskedCapabilities,
  CAPABILITY_WORDS,
  KeptCapabilities,
  MAX_CAPABILITIES,
  bothCapabilities,
  containsCapability,
  grantedCapabilities,
  parseCapability,
} from "../../shared/protocol/endpoint/capabilities.ts";
import { ActorGrantArgs } from "../../shared/protocol/endpoint/auth-shapes.ts";
import { MintArgs } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import { Scope } from "../../shared/protocol/endpoint/views.ts";
import { AclRow } from "../../shared/protocol/ledger/rows.ts";
import { refusal } from "../support/refusal.ts";

const ECHO = "com.example.echo";

/** Capabilities of a few endpoints, so that two of them meet. */
const some = fc
  .record({
    endpoint: fc.constantFrom(ECHO, "com.example.job", "org.x"),
    name: fc.constantFrom("", ":audit", ":a"),
    all: fc.constantFrom("", "@all"),
  })
  .map(({ endpoint, name, all }) => `${endpoint}${name}${all}`);
const lists = fc.array(fc.oneof(some, fc.constantFrom(...CAPABILITY_WORDS)), { maxLength: 6 });

describe("what a capability is", () => {
  test.each([
    [ECHO, { kind: "endpoint", endpoint: ECHO, scatter: false }],
    [`${ECHO}@all`, { kind: "endpoint", endpoint: ECHO, scatter: true }],
    [`${ECHO}:audit`, { kind: "endpoint", endpoint: ECHO, capability: "audit", scatter: false }],
    [`${ECHO}:audit@all`, { kind: "endpoint", endpoint: ECHO, capability: "audit", scatter: true }],
    ["serve", { kind: "word", word: "serve" }],
  ])("PD.06 %s", (text, parsed) => {
    expect(parseCapability(text)).toEqual(parsed);
  });

  test.each([
    "",
    "*",
    ">",
    "com.*",
    "*.echo",
    "com.example.>",
    "Com.Example",
    "com..echo",
    "com.example.echo.",
    `${ECHO}:`,
    `${ECHO}:*`,
    `${ECHO}:a:b`,
    `${ECHO}@all@all`,
    `${ECHO}@all:audit`,
    `${ECHO}@one`,
    "manager:spawn",
    "provisioner@all",
    "serve@all",
    "com_example_echo",
    `com.${"e".repeat(64)}`,
    `${ECHO}:${"a".repeat(33)}`,
    `${ECHO} `,
    `${ECHO}\n`,
  ])("PD.06 %j is none, and no row or request carries it", (text) => {
    expect(parseCapability(text)).toBeUndefined();
    expect(AskedCapabilities.safeParse([text]).success).toBe(false);
    expect(KeptCapabilities.safeParse([text]).success).toBe(false);
    expect(refusal(() => grantedCapabilities([text])).code).toBe("bad-request");
  });

  test("whatever text comes, it is read or it is nothing", () => {
    fc.assert(
      fc.property(fc.string({ unit: "binary", maxLength: 80 }), (text) => {
        const parsed = parseCapability(text);
        expect(parsed === undefined || /^[a-z0-9.:@-]+$/.test(text)).toBe(true);
      }),
    );
  });
});

describe("what is granted", () => {
  test("the words are the scopes of views, and serve", () => {
    expect(CAPABILITY_WORDS).toEqual([...Object.values(Scope), "serve"]);
    expect(grantedCapabilities(CAPABILITY_WORDS)).toEqual([...CAPABILITY_WORDS].toSorted());
  });

  test("A.08 a word that opens nothing is refused, with those that do", () => {
    const { code, message, next, outcome } = refusal(() => grantedCapabilities(["serve", "audit"]));
    expect([code, outcome]).toEqual(["bad-request", "not-executed"]);
    expect(message).toContain('"audit"');
    for (const word of [...CAPABILITY_WORDS, `${ECHO}:audit`]) expect(next).toContain(word);
  });

  test("A.08 what is none is refused with what one looks like, and a long one is cut short", () => {
    const { message, next } = refusal(() => grantedCapabilities([`${"x.".repeat(200)}*`]));
    expect(message.length).toBeLessThan(200);
    for (const form of [ECHO, `${ECHO}:audit`, "@all", "serve"]) expect(next).toContain(form);
  });

  test("sorted, each once, and no more than a row carries", () => {
    expect(grantedCapabilities(["serve", `${ECHO}:b`, ECHO, "serve"])).toEqual([ECHO, `${ECHO}:b`, "serve"]);
    const many = Array.from({ length: MAX_CAPABILITIES + 1 }, (_, at) => `com.e${at}`);
    expect(refusal(() => grantedCapabilities(many)).message).toContain("33");
    expect(grantedCapabilities([...many.slice(1), ...many.slice(1)])).toHaveLength(MAX_CAPABILITIES);
  });
});

describe("W9.04 what contains what", () => {
  test.each([
    [ECHO, ECHO, true],
    [`${ECHO}@all`, ECHO, true],
    [ECHO, `${ECHO}@all`, false],
    [ECHO, `${ECHO}:audit`, false],
    [`${ECHO}@all`, `${ECHO}:audit`, false],
    [`${ECHO}:audit`, ECHO, false],
    [`${ECHO}:audit@all`, `${ECHO}:audit`, true],
    [`${ECHO}:audit`, `${ECHO}:audit@all`, false],
    ["com.example", ECHO, false],
    [ECHO, `${ECHO}o`, false],
    ["admin", "purge", false],
    ["serve", "serve", true],
  ])("%s contains %s: %s", (outer, inner, contains) => {
    expect(containsCapability(outer, inner)).toBe(contains);
  });

  test("what both lists open is within each of them, and is all that is", () => {
    fc.assert(
      fc.property(lists, lists, some, (one, other, asked) => {
        const shared = bothCapabilities(one, other);
        const within = (list: readonly string[]) => list.some((outer) => containsCapability(outer, asked));
        expect(within(shared)).toBe(within(one) && within(other));
        expect(KeptCapabilities.safeParse(shared).success).toBe(true);
      }),
    );
  });
});

describe("rows and requests", () => {
  const acl = {
    v: 1,
    name: "a",
    allowSubscribe: [],
    durables: true,
    credential: `U${"A".repeat(55)}`,
    at: 0,
  };

  test("a row of before there were any reads as none, and is not corrupt", () => {
    expect(AclRow.parse(acl).capabilities).toBeUndefined();
    expect(AclRow.parse({ ...acl, capabilities: [ECHO, "serve"] }).capabilities).toEqual([ECHO, "serve"]);
  });

  test.each([
    ["out of order", ["serve", ECHO]],
    ["one twice", [ECHO, ECHO]],
    ["too many", Array.from({ length: 33 }, (_, at) => `com.e${String(at).padStart(2, "0")}`)],
    ["what is none", ["*"]],
  ])("a row with %s is corruption", (_, capabilities) => {
    expect(AclRow.safeParse({ ...acl, capabilities }).success).toBe(false);
  });

  test("who asks need not sort, and is held to the number", () => {
    const grant = { owner: `u_${"a".repeat(26)}`, actor: "a" };
    const mint = { profile: "agent", owner: "acme", actor: "a", name: "a", userKey: acl.credential };
    const many = Array.from({ length: 33 }, (_, at) => `com.e${at}`);
    for (const [shape, whole] of [[ActorGrantArgs, grant] as const, [MintArgs, mint] as const]) {
      expect(shape.safeParse({ ...whole, capabilities: ["serve", `${ECHO}@all`, ECHO] }).success).toBe(true);
      expect(shape.safeParse({ ...whole, capabilities: many }).success).toBe(false);
      expect(shape.safeParse({ ...whole, capabilities: ["a b"] }).success).toBe(false);
    }
  });
});
