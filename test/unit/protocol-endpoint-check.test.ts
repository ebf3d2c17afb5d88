/** What a responder holds against a request before anything runs, rule by rule and in its order (§13.2, §13.3). */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { CotalError } from "../../shared/protocol/base/errors.ts";
import {
  type CommandContract,
  checkClass,
  checkDigests,
  checkVerb,
} from "../../shared/protocol/endpoint/check-contract.ts";
import { type CheckedRequest, checkRequest } from "../../shared/protocol/endpoint/check-request.ts";
import {
  type AuthzMode,
  type CallAddress,
  type Caller,
  type EndpointRequestSubject,
  type TargetBlock,
  endpointSubjects,
  parseRequestSubject,
} from "../../shared/protocol/endpoint/grammar.ts";
import { type RequestFrame, readRequest } from "../../shared/protocol/endpoint/read-envelope.ts";
import { MODES } from "../support/endpoint-subjects.ts";
import { nearMiss } from "../support/near-miss.ts";
import { refusal } from "../support/refusal.ts";

const OWNER = "u_aaaaaaaaaaaaaaaaaaaaaaaaaa";
const OTHER = "u_bbbbbbbbbbbbbbbbbbbbbbbbbb";
const UID = "c".repeat(26);
const TARGET_UID = "t".repeat(26);
const INSTANCE = "i".repeat(26);
const OTHER_INSTANCE = "j".repeat(26);
const NONCE = "0123456789abcdefghij_-";
const IN = `sha256:${"0a".repeat(32)}`;
const OUT = `sha256:${"0b".repeat(32)}`;
const me: Caller = { principal: { owner: OWNER, actor: "alice" }, uid: UID };
const self = { instanceId: INSTANCE, epoch: 3 };
const plain: CommandContract = { class: "ephemeral", modes: [], action: false, inputDigest: IN, outputDigest: OUT };
const targeted: CommandContract = { ...plain, modes: MODES };

function subjectOf(address: Partial<CallAddress> = {}, caller = me): EndpointRequestSubject {
  const at = { route: "one", endpoint: "a.b", command: "run", ...address } as CallAddress;
  const parsed = parseRequestSubject(endpointSubjects("main").request(at, caller, NONCE));
  if (parsed === undefined) throw new Error("the subject did not parse");
  return parsed;
}

function requestOf(over: object = {}): RequestFrame {
  const sent = {
    v: 1,
    id: "r-1",
    op: { endpoint: "a.b", command: "run", inputDigest: IN, outputDigest: OUT },
    class: "ephemeral",
    replyExpected: true,
    from: { id: `${OWNER}.alice`, name: "alice" },
    deadlineMs: 5000,
    ...over,
  };
  const reading = readRequest(new TextEncoder().encode(JSON.stringify(sent)));
  if (!reading.ok) throw reading.error;
  return reading.request;
}

type Case = { readonly at?: Partial<CallAddress>; readonly over?: object; readonly contract?: CommandContract };

const check = ({ at, over, contract = plain }: Case): CheckedRequest =>
  checkRequest(subjectOf(at), requestOf(over), contract, self);

const op = { endpoint: "a.b", command: "run", inputDigest: IN, outputDigest: OUT };
const describeCase = (over: object = {}): Case => ({
  at: { command: "describe" },
  over: { op: { endpoint: "a.b", command: "describe" }, ...over },
});
const instance = { route: "inst", instanceId: INSTANCE } as const;

/** Each rule with requests that keep it and requests that break it. */
type Rule = { readonly rule: string; readonly code: string; readonly keeps: Case[]; readonly breaks: Case[] };

const RULES: readonly Rule[] = [
  {
    rule: "W133.02 op says what the subject says",
    code: "op-mismatch",
    keeps: [{}, { over: { op: { ...op, later: 1 } } }],
    breaks: [
      { over: { op: { ...op, endpoint: "a" } } },
      // The token is no name: `a_b` on the wire is `a.b` here.
      { over: { op: { ...op, endpoint: "a_b" } } },
      { over: { op: { ...op, command: "stop" } } },
    ],
  },
  {
    rule: "W133.03 the class is the contract's, and journaled work is not asked for on a rail",
    code: "class-mismatch",
    keeps: [{ over: { class: "ephemeral" } }],
    breaks: [
      { over: { class: "journal" } },
      { contract: { ...plain, class: "journal" } },
      { over: { class: "journal" }, contract: { ...plain, class: "journal" } },
      { over: { replyExpected: false, class: "journal" }, contract: { ...plain, class: "journal" } },
    ],
  },
  {
    rule: "W133.03 who waits says how long, within a bound; only an action has a goal",
    code: "bad-request",
    keeps: [
      { over: { deadlineMs: 1 } },
      { over: { deadlineMs: 600_000 } },
      { over: { replyExpected: false, deadlineMs: undefined } },
    ],
    breaks: [
      { over: { deadlineMs: undefined } },
      { over: { deadlineMs: 600_001 } },
      { over: { replyExpected: false, deadlineMs: 600_001 } },
      { at: { route: "all" }, over: { deadlineMs: undefined } },
      { over: { goalId: "g" } },
    ],
  },
  {
    rule: "W133.04 from is the subject's sender",
    code: "sender-mismatch",
    keeps: [{ over: { from: { id: `${OWNER}.alice`, name: "whatever it calls itself" } } }],
    breaks: [
      { over: { from: { id: `${OWNER}.bob`, name: "alice" } } },
      { over: { from: { id: `${OWNER}-alice`, name: "alice" } } },
      { over: { from: { id: `${OTHER}.alice`, name: "alice" } } },
      { over: { from: { id: "", name: "alice" } } },
    ],
  },
  {
    rule: "W132.13 describe and scatter are not bound, and the instance rail is bound to its own",
    code: "bad-request",
    keeps: [
      describeCase(),
      { at: { route: "all" } },
      { at: instance, over: { bind: self } },
      { over: { bind: { ...self, later: 1 } } },
    ],
    breaks: [
      describeCase({ bind: self }),
      { at: { route: "all" }, over: { bind: self } },
      { at: instance, over: { bind: { ...self, instanceId: OTHER_INSTANCE } } },
    ],
  },
  {
    rule: "W132.13 another instance refuses a bound request",
    code: "failed-precondition",
    keeps: [{ over: { bind: self } }],
    breaks: [
      { over: { bind: { ...self, instanceId: OTHER_INSTANCE } } },
      { over: { bind: { instanceId: OTHER_INSTANCE, epoch: 9 } } },
    ],
  },
  {
    rule: "W132.13 another epoch of the same instance refuses a bound request",
    code: "expired",
    keeps: [{ at: instance, over: { bind: self } }],
    breaks: [
      { over: { bind: { ...self, epoch: 2 } } },
      { over: { bind: { ...self, epoch: 4 } } },
      { at: instance, over: { bind: { ...self, epoch: 2 } } },
    ],
  },
  {
    rule: "W133.02 both digests are the contract's, on every command but describe",
    code: "contract-mismatch",
    keeps: [{}, describeCase()],
    breaks: [
      { over: { op: { ...op, inputDigest: undefined } } },
      { over: { op: { ...op, outputDigest: undefined } } },
      { over: { op: { ...op, inputDigest: OUT } } },
      { over: { op: { ...op, outputDigest: IN } } },
      { over: { op: { ...op, inputDigest: OUT, outputDigest: IN } } },
    ],
  },
];

describe("W133.02 W133.03 W133.04 W132.13 rule by rule", () => {
  test.each(RULES)("$rule: kept", ({ keeps }) => {
    for (const kept of keeps) expect(check(kept).caller).toEqual(me);
    expect(keeps.length).toBeGreaterThan(0);
  });

  test.each(RULES)("$rule: broken, it is $code, and nothing ran", ({ breaks, code }) => {
    const errors = breaks.map((broken) => refusal(() => check(broken)));
    expect(errors.map((error) => [error.code, error.outcome])).toEqual(breaks.map(() => [code, "not-executed"]));
  });

  test("W132.13 a refused bind says so, and no other refusal does", () => {
    const kinds = RULES.flatMap(({ rule, code, breaks }) =>
      breaks.map((broken) => [rule, code, refusal(() => check(broken)).details.map(({ kind }) => kind)] as const),
    );
    const withKind = kinds.filter(([, , found]) => found.length > 0);
    expect(new Set(withKind.map(([, code]) => code))).toEqual(new Set(["failed-precondition", "expired"]));
    expect(withKind.every(([, , found]) => found.join() === "ai.cotal.ep.bind-refused")).toBe(true);
    expect(withKind).toHaveLength(5);
  });

  test("W133.02 a command that nobody has declared is unimplemented", () => {
    const error = refusal(() => checkRequest(subjectOf(), requestOf(), undefined, self));
    expect([error.code, error.outcome]).toEqual(["unimplemented", "not-executed"]);
  });
});

const BLOCKS: Readonly<Record<AuthzMode, TargetBlock>> = {
  self: { mode: "self" },
  owner: { mode: "owner", owner: OTHER },
  any: { mode: "any", owner: OTHER },
  child: { mode: "child", owner: OTHER },
  ledger: { mode: "ledger", owner: OTHER },
  handle: { mode: "handle", owner: OTHER, actor: "bob", uid: TARGET_UID },
  exact: { mode: "exact", owner: OTHER, actor: "bob", uid: TARGET_UID },
};
const target = { owner: OTHER, actor: "bob", lifecycleUid: TARGET_UID, mappingRevision: 4 };
const others = MODES.filter((mode) => mode !== "self");
const aimed = (mode: AuthzMode, sent: unknown, contract = targeted): Case => ({
  at: { target: BLOCKS[mode] },
  over: { target: sent },
  contract,
});
const codeOf = (broken: Case): string => {
  const error = refusal(() => check(broken));
  return `${error.code} ${error.outcome}`;
};

describe("W133.04 W132.08 W132.09 the target, by mode", () => {
  test.each(others)("W133.04 %s: the body names the target, and it is handed on as it was sent", (mode) => {
    expect(check(aimed(mode, target)).target).toEqual(target);
    expect(check(aimed(mode, { ...target, mappingRevision: undefined, later: 1 })).target).toMatchObject({
      lifecycleUid: TARGET_UID,
    });
  });

  test.each(others)("W132.09 %s: without target, or of another owner, it is target-mismatch", (mode) => {
    for (const sent of [undefined, { ...target, owner: OWNER }, { ...target, owner: "local" }]) {
      expect(codeOf(aimed(mode, sent))).toBe("target-mismatch not-executed");
    }
  });

  test.each(["handle", "exact"] as const)("W132.09 %s: actor and UID agree with the subject too (H5)", (mode) => {
    for (const over of [{ actor: "carol" }, { lifecycleUid: "u".repeat(26) }]) {
      expect(codeOf(aimed(mode, { ...target, ...over }))).toBe("target-mismatch not-executed");
    }
  });

  test.each(["owner", "any", "child", "ledger"] as const)(
    "W133.04 %s: actor and UID are the body's, for the current mapping to judge",
    (mode) => {
      const other = { ...target, actor: "carol", lifecycleUid: "u".repeat(26) };
      expect(check(aimed(mode, other)).target).toEqual(other);
    },
  );

  test("W132.08 self: the target is the caller of the subject, its UID too", () => {
    expect(check(aimed("self", undefined)).target).toEqual({ owner: OWNER, actor: "alice", lifecycleUid: UID });
  });

  test.each([[target], [{ owner: OWNER, actor: "alice", lifecycleUid: UID }], [{}], [null], [{ kind: "self" }], [7]])(
    "W132.08 W133.04 a body target %j is refused where there is room for none, never ignored",
    (sent) => {
      expect(codeOf(aimed("self", sent))).toBe("target-mismatch not-executed");
      expect(codeOf({ over: { target: sent } })).toBe("target-mismatch not-executed");
    },
  );

  test("W133.04 an untargeted command has no target at all", () => {
    expect(check({}).target).toBeUndefined();
  });

  test.each(MODES)("W133.04 the form %s is for commands that have declared it", (mode) => {
    const sent = mode === "self" ? undefined : target;
    const without = { ...plain, modes: MODES.filter((other) => other !== mode) };
    expect(codeOf(aimed(mode, sent, plain))).toBe("target-mismatch not-executed");
    expect(codeOf(aimed(mode, sent, without))).toBe("target-mismatch not-executed");
    expect(check(aimed(mode, sent, { ...plain, modes: [mode] })).caller).toEqual(me);
  });

  test("W133.04 a targeted command is not called without a target block", () => {
    expect(codeOf({ contract: targeted })).toBe("target-mismatch not-executed");
    expect(codeOf({ contract: targeted, over: { target } })).toBe("target-mismatch not-executed");
  });

  test.each<[string, unknown]>([
    ["no owner", { actor: "bob", lifecycleUid: TARGET_UID }],
    ["an actor with a dot", { ...target, actor: "a.b" }],
    ["no UID", { ...target, lifecycleUid: undefined }],
    ["a UID in capitals", { ...target, lifecycleUid: TARGET_UID.toUpperCase() }],
    ["half a revision", { ...target, mappingRevision: 1.5 }],
    ["no object", "bob"],
    ["null", null],
  ])("W133.04 a target with %s is bad-request", (_what, sent) => {
    expect(codeOf(aimed("owner", sent))).toBe("bad-request not-executed");
  });
});

describe("W133.01 W133.02 the order of the checks", () => {
  /** One fault of each check, in the order of the contract. Faults of different checks can stand together. */
  const faults: readonly { readonly code: string; readonly over: object }[] = [
    { code: "op-mismatch", over: { op: { endpoint: "other", command: "run" } } },
    { code: "class-mismatch", over: { class: "journal" } },
    { code: "bad-request", over: { deadlineMs: undefined } },
    { code: "sender-mismatch", over: { from: { id: "local.eve", name: "eve" } } },
    { code: "failed-precondition", over: { bind: { ...self, instanceId: OTHER_INSTANCE } } },
    { code: "target-mismatch", over: { target } },
    { code: "contract-mismatch", over: { op: { endpoint: "a.b", command: "run" } } },
  ];

  const pairs = faults.flatMap((first, index) => faults.slice(index + 1).map((second) => ({ first, second })));
  test.each(pairs)("W133.02 $first.code before $second.code", ({ first, second }) => {
    expect(codeOf({ over: { ...second.over, ...first.over } })).toBe(`${first.code} not-executed`);
    expect(codeOf({ over: second.over })).toBe(`${second.code} not-executed`);
  });
});

describe("W133.03 W133.02 what a contract asks on the submission plane too", () => {
  const action: CommandContract = { ...plain, class: "journal", action: true };
  const journal = (over: object = {}) => requestOf({ class: "journal", goalId: "g-1", ...over });

  test("W133.03 an action has its goal, a journaled request its deadline, and no cap of a call", () => {
    expect(() => {
      checkClass(journal(), action, "journal");
      checkVerb(journal({ replyExpected: false, deadlineMs: 86_400_000 }), action);
      checkDigests(journal(), action);
    }).not.toThrow();
    const errors = [{ goalId: undefined }, { deadlineMs: undefined }, { replyExpected: false, deadlineMs: undefined }];
    const codes = errors.map((over) => refusal(() => checkVerb(journal(over), action)).code);
    expect(codes).toEqual(["bad-request", "bad-request", "bad-request"]);
    const noAction = refusal(() => checkVerb(journal(), { ...action, action: false }));
    expect(noAction.code).toBe("bad-request");
  });

  test("W133.03 an ephemeral command is not submitted", () => {
    expect(refusal(() => checkClass(requestOf(), plain, "journal")).code).toBe("class-mismatch");
  });
});

describe("W133.06 W133.11 what comes out", () => {
  const attempt = <T>(call: () => T): T | CotalError => {
    try {
      return call();
    } catch (thrown) {
      if (thrown instanceof CotalError) return thrown;
      throw thrown;
    }
  };

  test("W133.06 the digest of the auth slot, and none where there is no slot", () => {
    const slot = "slot";
    expect(check({ over: { auth: slot } }).authDigest).toBe(
      "sha256:6558838331b742a6f1d5935b32b4612aecdbcc7254868c7eeece68fbd0149ea3",
    );
    expect(check({}).authDigest).toBeUndefined();
  });

  test("W133.11 nothing in the body changes who asks, or widens for whom", () => {
    const issued: Caller = { ...me, generation: "0".repeat(32) };
    const base = {
      ...requestOf({ target, auth: "handle", bind: self }),
      owner: OTHER,
      caller: "root",
      capabilities: ["admin"],
      authz: "any",
      uid: TARGET_UID,
    };
    const seen = { passed: 0 };
    fc.assert(
      fc.property(fc.oneof(fc.constant(base), nearMiss([base])), fc.constantFrom(...others), (sent, mode) => {
        const reading = readRequest(new TextEncoder().encode(JSON.stringify(sent) ?? ""));
        fc.pre(reading.ok);
        const subject = subjectOf({ target: BLOCKS[mode] }, issued);
        const checked = attempt(() =>
          checkRequest(subject, (reading as { request: RequestFrame }).request, targeted, self),
        );
        seen.passed += checked instanceof CotalError ? 0 : 1;
        const said = checked instanceof CotalError ? checked.outcome : [checked.caller, checked.target?.owner];
        expect(said).toEqual(checked instanceof CotalError ? "not-executed" : [issued, OTHER]);
      }),
      { numRuns: 1000 },
    );
    expect(seen.passed).toBeGreaterThan(50);
  });
});
