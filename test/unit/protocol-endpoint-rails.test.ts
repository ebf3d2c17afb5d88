/** Every request and reply form of §13.2 on both rails: spelled by hand, at random, and nearly right. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  type CallAddress,
  type Caller,
  type EndpointRequestSubject,
  callerOf,
  deriveReply,
  endpointSubjects,
  endpointToken,
  isCoreEndpoint,
  isEndpointName,
  isOwnCommand,
  parseReplySubject,
  parseRequestSubject,
} from "../../shared/protocol/endpoint/grammar.ts";
import { matches } from "../../shared/protocol/base/channels.ts";
import { spaces } from "../support/arbitraries.ts";
import { MODES, addresses, callers, endpoints, epochs, nonces, requestByTable } from "../support/endpoint-subjects.ts";
import { nearMissText } from "../support/near-miss.ts";
import { refusal } from "../support/refusal.ts";

const OWNER = "u_aaaaaaaaaaaaaaaaaaaaaaaaaa";
const TARGET_OWNER = "u_bbbbbbbbbbbbbbbbbbbbbbbbbb";
const UID = "c".repeat(26);
const TARGET_UID = "t".repeat(32);
const INSTANCE = "i".repeat(26);
const GENERATION = "0123456789abcdef0123456789abcdef";
const NONCE = "0123456789abcdefghij_-";

const principal = { owner: OWNER, actor: "alice" };
const legacy: Caller = { principal, uid: UID };
const issued: Caller = { ...legacy, generation: GENERATION };
const rails = endpointSubjects("main");

const triple = { owner: TARGET_OWNER, actor: "bob", uid: TARGET_UID };
const FORMS = [
  { form: "untargeted", block: "", target: undefined, tokens: 10 },
  { form: "self", block: "self.", target: { mode: "self" }, tokens: 11 },
  { form: "owner", block: `owner.${TARGET_OWNER}.`, target: { mode: "owner", owner: TARGET_OWNER }, tokens: 12 },
  { form: "any", block: `any.${TARGET_OWNER}.`, target: { mode: "any", owner: TARGET_OWNER }, tokens: 12 },
  { form: "child", block: `child.${TARGET_OWNER}.`, target: { mode: "child", owner: TARGET_OWNER }, tokens: 12 },
  { form: "ledger", block: `ledger.${TARGET_OWNER}.`, target: { mode: "ledger", owner: TARGET_OWNER }, tokens: 12 },
  {
    form: "handle",
    block: `handle.${TARGET_OWNER}.bob.${TARGET_UID}.`,
    target: { mode: "handle", ...triple },
    tokens: 14,
  },
  {
    form: "exact",
    block: `exact.${TARGET_OWNER}.bob.${TARGET_UID}.`,
    target: { mode: "exact", ...triple },
    tokens: 14,
  },
] as const;

const ROUTES = [
  { route: "one", place: "one.com_acme_deploy", extra: 0, to: { route: "one" } },
  { route: "all", place: "all.com_acme_deploy", extra: 0, to: { route: "all" } },
  {
    route: "inst",
    place: `inst.com_acme_deploy.${INSTANCE}`,
    extra: 1,
    to: { route: "inst", instanceId: INSTANCE },
  },
] as const;

const RAILS = [
  { rail: "ep", prefix: "cotal.main.ep", caller: legacy, before: "", more: 0 },
  { rail: "ep.v1", prefix: "cotal.main.ep.v1", caller: issued, before: `${GENERATION}.`, more: 2 },
] as const;

const TABLE = RAILS.flatMap((rail) =>
  ROUTES.flatMap((route) =>
    FORMS.map((form) => ({
      what: `${rail.rail} ${route.route} ${form.form}`,
      text: `${rail.prefix}.${route.place}.roll-out.${form.block}${OWNER}.alice.${UID}.${rail.before}${NONCE}`,
      address: {
        ...route.to,
        endpoint: "com.acme.deploy",
        command: "roll-out",
        ...(form.target === undefined ? {} : { target: form.target }),
      } satisfies CallAddress,
      caller: rail.caller as Caller,
      tokens: form.tokens + route.extra + rail.more,
    })),
  ),
);

const parsed = (text: string): EndpointRequestSubject => {
  const request = parseRequestSubject(text);
  if (request === undefined) throw new Error(`${text} did not parse`);
  return request;
};

describe("W132.03 W132.15 the table of forms, spelled by hand", () => {
  test.each(TABLE)("$what", ({ text, address, caller, tokens }) => {
    expect(rails.request(address, caller, NONCE)).toBe(text);
    expect(text.split(".")).toHaveLength(tokens);
    const { principal: sender, ...rest } = caller;
    expect(parseRequestSubject(text)).toEqual({ space: "main", ...address, ...sender, ...rest, nonce: NONCE });
    expect(callerOf(parsed(text))).toEqual(caller);
  });

  test("W132.03 there are 48 of them, all different, of 10 to 17 tokens", () => {
    expect(new Set(TABLE.map(({ text }) => text)).size).toBe(48);
    const counts = TABLE.map(({ tokens }) => tokens);
    expect([Math.min(...counts), Math.max(...counts)]).toEqual([10, 17]);
  });

  test("W132.03 whatever is built is parsed as it was, on the rail of its caller", () => {
    fc.assert(
      fc.property(spaces, addresses, callers, nonces, (space, address, caller, nonce) => {
        const text = endpointSubjects(space).request(address, caller, nonce);
        expect(requestByTable(text)).toBeDefined();
        const { principal: sender, ...rest } = caller;
        expect(parseRequestSubject(text)).toEqual({ space, ...address, ...sender, ...rest, nonce });
        expect(text.startsWith(`cotal.${space}.ep.v1.`)).toBe(caller.generation !== undefined);
        expect(Buffer.byteLength(text)).toBeLessThanOrEqual(1024);
      }),
    );
  });
});

describe("W132.04 what is no form has no sender", () => {
  const changes: Readonly<Record<string, (tokens: readonly string[]) => string[]>> = {
    "one token more": (tokens) => [...tokens, "x"],
    "one token less": (tokens) => tokens.slice(0, -1),
    "an empty token at the end": (tokens) => [...tokens, ""],
    "an empty token inside": (tokens) => tokens.toSpliced(6, 0, ""),
    "an upper-case command": (tokens) => tokens.map((token) => (token === "roll-out" ? "Roll-Out" : token)),
    "a wildcard nonce": (tokens) => [...tokens.slice(0, -1), "*"],
    "a tail wildcard": (tokens) => [...tokens.slice(0, -1), ">"],
    "a wildcard sender": (tokens) => tokens.map((token) => (token === "alice" ? "*" : token)),
    "a raw key as owner": (tokens) => tokens.map((token) => (token === OWNER ? `U${"A".repeat(55)}` : token)),
    "owner and actor swapped": (tokens) => tokens.with(-2, tokens.at(-3) ?? "").with(-3, tokens.at(-2) ?? ""),
    "another root": (tokens) => tokens.with(0, "Cotal"),
    "another kind": (tokens) => tokens.with(2, "epj"),
    "another rail": (tokens) => (tokens[3] === "v1" ? tokens.with(3, "v2") : tokens.toSpliced(3, 0, "v2")),
    "the other rail": (tokens) => (tokens[3] === "v1" ? tokens.toSpliced(3, 1) : tokens.toSpliced(3, 0, "v1")),
    "another route": (tokens) => tokens.map((token) => (/^(?:one|all|inst)$/.test(token) ? "any" : token)),
  };

  test.each(Object.entries(changes))("W132.04 %s", (_what, change) => {
    const texts = TABLE.map(({ text }) => change(text.split(".")).join("."));
    expect(texts.filter((text) => parseRequestSubject(text) !== undefined)).toEqual([]);
  });

  test.each(MODES)("W132.04 the word %s is never an owner, and asks for its own target tokens", (mode) => {
    const untargeted = `cotal.main.ep.one.a.run.${mode}.alice.${UID}.${NONCE}`;
    expect(parseRequestSubject(untargeted)).toBeUndefined();
    const asTarget = `cotal.main.ep.one.a.run.owner.${mode}.${OWNER}.alice.${UID}.${NONCE}`;
    expect(parseRequestSubject(asTarget)).toBeUndefined();
    const blockless = FORMS.filter(({ form }) => form !== "untargeted").flatMap(({ form, block }) =>
      form === mode ? [] : [`cotal.main.ep.one.a.run.${block.replace(form, mode)}${OWNER}.alice.${UID}.${NONCE}`],
    );
    const wrong = blockless.filter((text) => parseRequestSubject(text) !== undefined);
    // Words of one arity share their target tokens; every other pairing is no form.
    expect(wrong.map((text) => text.split(".")[6])).toEqual(wrong.map(() => mode));
    expect(wrong.every((text) => requestByTable(text) !== undefined)).toBe(true);
    expect(wrong).toHaveLength({ self: 0, owner: 3, any: 3, child: 3, ledger: 3, handle: 1, exact: 1 }[mode]);
  });

  test("W132.04 a form with as many tokens as another is told apart by its word", () => {
    const self = parsed(`cotal.main.ep.one.a.run.self.${OWNER}.alice.${UID}.${NONCE}`);
    const inst = parsed(`cotal.main.ep.inst.a.${INSTANCE}.run.${OWNER}.alice.${UID}.${NONCE}`);
    expect([self.target, self.route]).toEqual([{ mode: "self" }, "one"]);
    expect([inst.target, inst.route]).toEqual([undefined, "inst"]);
  });

  test("W132.04 command words that look like a mode, a route or a rail stay commands", () => {
    for (const command of [...MODES, "one", "v1", "reply", "describe"]) {
      const text = rails.request({ route: "one", endpoint: "a", command, target: { mode: "self" } }, legacy, NONCE);
      expect(parsed(text)).toMatchObject({ command, target: { mode: "self" }, ...principal });
    }
  });

  const pool = fc.oneof(
    fc.constantFrom(...MODES, "one", "all", "inst", "reply", "ep", "v1", "main", "cotal", "a", "com_acme", "run"),
    fc.constantFrom(OWNER, "local", "alice", UID, TARGET_UID, NONCE, GENERATION, "0", "7"),
    fc.constantFrom("", "*", ">", "ALL", "Self", "a__b", "é", "constructor", "__proto__", "x".repeat(65), "\n"),
  );

  const expectTable = (text: string): void => {
    const wanted = requestByTable(text);
    const got = parseRequestSubject(text);
    const { owner, actor, uid, generation, nonce, command, endpoint } = got ?? {};
    const seen = {
      owner,
      actor,
      uid,
      generation,
      nonce,
      command,
      endpoint: endpoint?.replaceAll(".", "_"),
      instanceId: got?.route === "inst" ? got.instanceId : undefined,
    };
    expect(got === undefined ? undefined : seen).toEqual(wanted);
  };

  test("W132.04 token soups are what the table says, and nobody else's", () => {
    const soups = fc
      .tuple(fc.constantFrom("cotal.main.ep", "cotal.main.ep.v1", "cotal"), fc.array(pool, { maxLength: 16 }))
      .map(([head, tokens]) => [head, ...tokens].join("."));
    fc.assert(fc.property(soups, expectTable), { numRuns: 3000 });
  });

  test("W132.04 lawful subjects with tokens swapped, doubled, dropped or replaced", () => {
    const edit = fc.record({
      how: fc.constantFrom("swap", "double", "drop", "replace"),
      at: fc.nat(20),
      other: fc.nat(20),
      token: pool,
    });
    const edited = fc
      .tuple(fc.constantFrom(...TABLE.map(({ text }) => text)), fc.array(edit, { minLength: 1, maxLength: 3 }))
      .map(([text, edits]) => {
        let tokens = text.split(".");
        for (const { how, at, other, token } of edits) {
          const [a, b] = [at % tokens.length, other % tokens.length];
          if (how === "swap") tokens = tokens.with(a, tokens[b] ?? "").with(b, tokens[a] ?? "");
          else if (how === "drop") tokens = tokens.toSpliced(a, 1);
          else tokens = how === "double" ? tokens.toSpliced(a, 0, tokens[a] ?? "") : tokens.with(a, token);
        }
        return tokens.join(".");
      });
    fc.assert(fc.property(edited, expectTable), { numRuns: 5000 });
  });

  test("W132.04 characters put in and taken out", () => {
    fc.assert(fc.property(nearMissText(TABLE.map(({ text }) => text)), expectTable), { numRuns: 3000 });
  });
});

describe("W132.01 W132.02 W132.05 bounds of tokens", () => {
  const request = (over: { [key: string]: string }): string => {
    const at = { owner: OWNER, actor: "alice", uid: UID, nonce: NONCE, endpoint: "a", command: "run", ...over };
    return `cotal.main.ep.one.${at.endpoint}.${at.command}.${at.owner}.${at.actor}.${at.uid}.${at.nonce}`;
  };
  const bounds: readonly { token: string; longest: string; over: string }[] = [
    { token: "actor", longest: "a".repeat(64), over: "a".repeat(65) },
    { token: "command", longest: "a".repeat(32), over: "a".repeat(33) },
    { token: "endpoint", longest: `${"a".repeat(31)}_${"b".repeat(32)}`, over: `${"a".repeat(32)}_${"b".repeat(32)}` },
    { token: "uid", longest: "a".repeat(32), over: "a".repeat(33) },
    { token: "uid", longest: "a".repeat(26), over: "a".repeat(25) },
    { token: "nonce", longest: "a".repeat(64), over: "a".repeat(65) },
    { token: "nonce", longest: "a".repeat(22), over: "a".repeat(21) },
    { token: "owner", longest: `u_${"a".repeat(26)}`, over: `u_${"a".repeat(27)}` },
  ];

  test.each(bounds)("W132.05 W132.06 $token of $longest.length characters, and one past its bound", (row) => {
    expect(parseRequestSubject(request({ [row.token]: row.longest }))).toBeDefined();
    expect(parseRequestSubject(request({ [row.token]: row.over }))).toBeUndefined();
  });

  test.each<[string, () => unknown]>([
    ["owner", () => rails.one("a", "run", { principal: { owner: "self", actor: "a" }, uid: UID }, NONCE)],
    ["actor", () => rails.one("a", "run", { principal: { owner: OWNER, actor: "a.b" }, uid: UID }, NONCE)],
    ["uid", () => rails.one("a", "run", { principal, uid: "short" }, NONCE)],
    ["nonce", () => rails.one("a", "run", legacy, "short")],
    ["nonce", () => rails.replyTo(legacy, "*")],
    ["generation", () => rails.one("a", "run", { ...legacy, generation: "A".repeat(32) }, NONCE)],
    ["instanceId", () => rails.inst("a", "*", "run", legacy, NONCE)],
    ["command", () => rails.one("a", "r".repeat(33), legacy, NONCE)],
    ["endpoint", () => rails.one("a".repeat(65), "run", legacy, NONCE)],
    ["route", () => rails.request({ route: "two" as "one", endpoint: "a", command: "run" }, legacy, NONCE)],
    ["epoch", () => deriveReply(parsed(request({})), { instanceId: INSTANCE, epoch: -1 })],
    ["epoch", () => deriveReply(parsed(request({})), { instanceId: INSTANCE, epoch: 2 ** 53 })],
    ["nonce", () => rails.one("a", "run", legacy, undefined as unknown as string)],
  ])("W132.05 a builder refuses a malformed %s, names it and shows nothing of it", (name, build) => {
    const error = refusal(build);
    expect([error.code, error.outcome]).toEqual(["bad-request", "not-executed"]);
    expect(error.message).toContain(name);
    expect(error.message).not.toContain("short");
  });

  test("W132.05 1025 bytes are no request and no reply, whatever they hold", () => {
    const long = request({}).padEnd(1025, "x");
    expect(parseRequestSubject(long)).toBeUndefined();
    const reply = `cotal.main.ep.reply.a.${INSTANCE}.0.${OWNER}.alice.${UID}.${NONCE}`;
    expect(parseReplySubject(reply)).toBeDefined();
    expect(parseReplySubject(reply.padEnd(1025, "x"))).toBeUndefined();
  });

  test("W132.05 the longest lawful request of all stays within the bound", () => {
    const longest = endpointSubjects("s".repeat(32)).request(
      {
        route: "inst",
        instanceId: "i".repeat(32),
        endpoint: "e".repeat(32) + "." + "e".repeat(31),
        command: "c".repeat(32),
        target: { mode: "exact", owner: TARGET_OWNER, actor: "t".repeat(64), uid: TARGET_UID },
      },
      { principal: { owner: OWNER, actor: "a".repeat(64) }, uid: "u".repeat(32), generation: GENERATION },
      "n".repeat(64),
    );
    expect(Buffer.byteLength(longest)).toBeLessThanOrEqual(1024);
    expect(parseRequestSubject(longest)).toBeDefined();
  });

  test("W132.01 a name of one label is a core one, a third party's has two or more, and the token is exact", () => {
    expect(["manager", "delivery", "a-b"].filter((name) => !isCoreEndpoint(name))).toEqual([]);
    expect(["com.acme", "com.acme.deploy", "a_b", "A", ""].filter((name) => isCoreEndpoint(name))).toEqual([]);
    expect(endpointToken("com.acme.deploy")).toBe("com_acme_deploy");
    fc.assert(
      fc.property(endpoints, endpoints, (one, other) => {
        fc.pre(isEndpointName(one) && isEndpointName(other));
        expect(endpointToken(one) === endpointToken(other)).toBe(one === other);
      }),
    );
  });

  test("W132.02 reserved commands are nobody's own, and a command is one lower-case token", () => {
    const reserved = ["describe", "cancel", "lease", "commit", "resume"];
    expect([...reserved, "", "A", "a_b", "a.b", "*", "a".repeat(33)].filter((name) => isOwnCommand(name))).toEqual([]);
    expect(["roll-out", "a", "describe2", "a".repeat(32)].filter((name) => !isOwnCommand(name))).toEqual([]);
  });
});

describe("W132.10 W132.12 replies", () => {
  test.each(TABLE)("W132.10 of $what: the caller's tokens and its nonce, on the rail it came", ({ text, caller }) => {
    const reply = deriveReply(parsed(text), { instanceId: INSTANCE, epoch: 7 });
    const [rail, generation] = caller.generation === undefined ? ["ep", ""] : ["ep.v1", `${GENERATION}.`];
    expect(reply).toBe(
      `cotal.main.${rail}.reply.com_acme_deploy.${INSTANCE}.7.${OWNER}.alice.${UID}.${generation}${NONCE}`,
    );
    expect(parseReplySubject(reply)).toMatchObject({ endpoint: "com.acme.deploy", instanceId: INSTANCE, epoch: 7 });
  });

  test("W132.10 W132.11 a reply is read by its caller's one nonce, and by nobody else", () => {
    fc.assert(
      fc.property(addresses, callers, callers, nonces, epochs, (address, caller, other, nonce, epoch) => {
        fc.pre(JSON.stringify(caller) !== JSON.stringify(other));
        const request = parsed(rails.request(address, caller, nonce));
        const reply = deriveReply(request, { instanceId: INSTANCE, epoch });
        expect(matches(rails.replyTo(caller, nonce), reply)).toBe(true);
        expect(matches(rails.replyGrant(caller), reply)).toBe(true);
        expect(matches(rails.replyGrant(other), reply)).toBe(false);
        expect(parseReplySubject(reply)).toEqual({
          space: "main",
          endpoint: request.endpoint,
          instanceId: INSTANCE,
          epoch,
          owner: request.owner,
          actor: request.actor,
          uid: request.uid,
          nonce,
          ...(caller.generation === undefined ? {} : { generation: caller.generation }),
        });
      }),
    );
  });

  const reply = `cotal.main.ep.reply.a.${INSTANCE}.7.${OWNER}.alice.${UID}.${NONCE}`;
  test.each([
    ["an epoch with a leading zero", reply.replace(".7.", ".07.")],
    ["an epoch past 2^53-1", reply.replace(".7.", ".9007199254740992.")],
    ["a negative epoch", reply.replace(".7.", ".-1.")],
    ["an instance id in capitals", reply.replace(INSTANCE, INSTANCE.toUpperCase())],
    ["an owner that is none", reply.replace(OWNER, "acme")],
    ["no nonce", reply.slice(0, -NONCE.length - 1)],
    ["a generation on the legacy rail", reply.replace(NONCE, `${GENERATION}.${NONCE}`)],
    ["no generation on the versioned rail", reply.replace(".ep.", ".ep.v1.")],
    ["a request", `cotal.main.ep.one.a.run.${OWNER}.alice.${UID}.${NONCE}`],
  ])("W132.12 %s is no reply", (_what, text) => {
    expect(parseReplySubject(reply)).toBeDefined();
    expect(parseReplySubject(text)).toBeUndefined();
  });

  test("W132.12 near misses of a reply are read whole or not at all", () => {
    fc.assert(
      fc.property(nearMissText([reply]), (text) => {
        const read = parseReplySubject(text);
        fc.pre(read !== undefined);
        expect(text.split(".").slice(-4)).toEqual([read?.owner, read?.actor, read?.uid, read?.nonce]);
        expect(text.split(".")[6]).toBe(String(read?.epoch));
      }),
      { numRuns: 500 },
    );
  });
});
