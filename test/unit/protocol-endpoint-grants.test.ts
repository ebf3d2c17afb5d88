/** Patterns of the endpoint rails: a grant opens the form that it was made for, and no other (§13.2, §13.9). */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { permissionsOf } from "../../shared/grants/permissions.ts";
import { sub } from "../../shared/grants/row.ts";
import { matches } from "../../shared/protocol/base/channels.ts";
import {
  type CallAddress,
  type Caller,
  Rail,
  type TargetBlock,
  endpointSubjects,
} from "../../shared/protocol/endpoint/grammar.ts";
import { planeGrants, planeSubject } from "../../shared/protocol/endpoint/planes.ts";
import { MODES, addresses, callers, nonces } from "../support/endpoint-subjects.ts";
import { refusal } from "../support/refusal.ts";

const OWNER = "u_aaaaaaaaaaaaaaaaaaaaaaaaaa";
const OTHER = "u_bbbbbbbbbbbbbbbbbbbbbbbbbb";
const UID = "c".repeat(26);
const OTHER_UID = "d".repeat(26);
const INSTANCE = "i".repeat(26);
const OTHER_INSTANCE = "j".repeat(26);
const GENERATION = "0".repeat(32);
const NONCE = "0123456789abcdefghij_-";
const me: Caller = { principal: { owner: OWNER, actor: "alice" }, uid: UID };
const issued: Caller = { ...me, generation: GENERATION };
const rails = endpointSubjects("main");
const mine = `${OWNER}.alice.${UID}`;

const one = (command: string, target?: TargetBlock): CallAddress => ({
  route: "one",
  endpoint: "a",
  command,
  ...(target === undefined ? {} : { target }),
});

describe("PD.06 W132.08 a caller's rows, spelled by hand", () => {
  test.each<[string, CallAddress, Caller, string]>([
    ["untargeted", one("run"), me, `cotal.main.ep.one.a.run.${mine}.*`],
    ["self", one("run", { mode: "self" }), me, `cotal.main.ep.one.a.run.self.${mine}.*`],
    ["owner", one("run", { mode: "owner", owner: OWNER }), me, `cotal.main.ep.one.a.run.owner.${OWNER}.${mine}.*`],
    ["any", one("run", { mode: "any", owner: "*" }), me, `cotal.main.ep.one.a.run.any.*.${mine}.*`],
    ["child", one("run", { mode: "child", owner: OWNER }), me, `cotal.main.ep.one.a.run.child.${OWNER}.${mine}.*`],
    ["ledger", one("run", { mode: "ledger", owner: OTHER }), me, `cotal.main.ep.one.a.run.ledger.${OTHER}.${mine}.*`],
    [
      "ledger of an operator",
      one("run", { mode: "ledger", owner: "*" }),
      me,
      `cotal.main.ep.one.a.run.ledger.*.${mine}.*`,
    ],
    [
      "handle",
      one("run", { mode: "handle", owner: OTHER, actor: "bob", uid: OTHER_UID }),
      me,
      `cotal.main.ep.one.a.run.handle.${OTHER}.bob.${OTHER_UID}.${mine}.*`,
    ],
    [
      "exact, on the versioned rail",
      one("run", { mode: "exact", owner: OTHER, actor: "bob", uid: OTHER_UID }),
      issued,
      `cotal.main.ep.v1.one.a.run.exact.${OTHER}.bob.${OTHER_UID}.${mine}.${GENERATION}.*`,
    ],
    ["scatter", { route: "all", endpoint: "com.acme", command: "run" }, me, `cotal.main.ep.all.com_acme.run.${mine}.*`],
    [
      "one instance",
      { route: "inst", instanceId: INSTANCE, endpoint: "a", command: "run" },
      issued,
      `cotal.main.ep.v1.inst.a.${INSTANCE}.run.${mine}.${GENERATION}.*`,
    ],
    [
      "describe, everywhere",
      { route: "one", endpoint: "*", command: "describe" },
      me,
      `cotal.main.ep.one.*.describe.${mine}.*`,
    ],
  ])("%s", (_what, address, caller, row) => {
    expect(rails.grant(address, caller)).toBe(row);
  });

  const open = (mode: "handle" | "exact", over: object) =>
    one("run", { mode, owner: OTHER, actor: "bob", uid: OTHER_UID, ...over });
  test.each<[string, CallAddress, Caller?]>([
    ["every owner in owner mode", one("run", { mode: "owner", owner: "*" })],
    ["every owner in child mode", one("run", { mode: "child", owner: "*" })],
    ["every owner by a handle", open("handle", { owner: "*" })],
    ["every actor by a handle", open("handle", { actor: "*" })],
    ["every incarnation by a handle", open("handle", { uid: "*" })],
    ["every owner, exactly", open("exact", { owner: "*" })],
    ["every actor, exactly", open("exact", { actor: "*" })],
    ["every incarnation, exactly", open("exact", { uid: "*" })],
    ["every command", one("*")],
    ["every mode", one("run", { mode: "*" as "any", owner: "*" })],
    ["a tail", one("run", { mode: "any", owner: ">" })],
    ["every endpoint", { route: "one", endpoint: "*", command: "run" }],
    ["describe of every instance", { route: "inst", endpoint: "*", instanceId: INSTANCE, command: "describe" }],
    ["a scatter of describe to all endpoints", { route: "all", endpoint: "*", command: "describe" }],
    ["a targeted describe everywhere", { route: "one", endpoint: "*", command: "describe", target: { mode: "self" } }],
    ["every instance", { route: "inst", endpoint: "a", instanceId: "*", command: "run" }],
    ["every caller", one("run"), { ...me, uid: "*" }],
    ["every owner as caller", one("run"), { ...me, principal: { owner: "*", actor: "alice" } }],
    ["every generation", one("run"), { ...me, generation: "*" }],
  ])("W132.08 PD.06 no row for %s", (_what, address, caller = me) => {
    expect(refusal(() => rails.grant(address, caller)).code).toBe("bad-request");
  });
});

describe("W132.08 W132.15 what a row reaches", () => {
  /** Few values, so that two draws often meet. */
  const owners = fc.constantFrom(OWNER, OTHER);
  const uids = fc.constantFrom(UID, OTHER_UID);
  const someone = fc.record({ owner: owners, actor: fc.constantFrom("alice", "bob") });
  const someCaller: fc.Arbitrary<Caller> = fc
    .tuple(someone, uids, fc.boolean())
    .map(([principal, uid, isIssued]) => ({ principal, uid, ...(isIssued ? { generation: GENERATION } : {}) }));
  const someBlock: fc.Arbitrary<TargetBlock | undefined> = fc
    .tuple(fc.constantFrom(undefined, ...MODES), someone, uids)
    .map(([mode, { owner, actor }, uid]) => {
      if (mode === undefined) return undefined;
      if (mode === "self") return { mode };
      return mode === "handle" || mode === "exact" ? { mode, owner, actor, uid } : { mode, owner };
    });
  const someAddress: fc.Arbitrary<CallAddress> = fc
    .tuple(
      fc.constantFrom("one" as const, "all" as const, "inst" as const),
      fc.constantFrom("a", "b.c"),
      fc.constantFrom("run", "stop"),
      fc.constantFrom(INSTANCE, OTHER_INSTANCE),
      someBlock,
    )
    .map(([route, endpoint, command, instanceId, target]) => ({
      ...(route === "inst" ? { route, instanceId } : { route }),
      endpoint,
      command,
      ...(target === undefined ? {} : { target }),
    }));

  test("W132.08 exactly the form it was made for, by exactly its caller", () => {
    fc.assert(
      fc.property(someAddress, someCaller, someAddress, someCaller, (granted, holder, asked, caller) => {
        const same = JSON.stringify([granted, holder]) === JSON.stringify([asked, caller]);
        const subject = rails.request(asked, caller, NONCE);
        expect(matches(rails.grant(granted, holder), subject)).toBe(same);
        expect(matches(rails.grant(asked, caller), subject)).toBe(true);
      }),
      { numRuns: 2000 },
    );
  });

  test.each(["any", "ledger"] as const)("W132.08 an open owner in mode %s stays in its mode", (mode) => {
    fc.assert(
      fc.property(someBlock, someCaller, (target, caller) => {
        const open = rails.grant(one("run", { mode, owner: "*" }), me);
        const subject = rails.request(one("run", target), caller, NONCE);
        const wanted = target?.mode === mode && JSON.stringify(caller) === JSON.stringify(me);
        expect(matches(open, subject)).toBe(wanted);
      }),
      { numRuns: 500 },
    );
  });

  test("W132.15 the rails are disjoint: a row of one matches no subject of the other", () => {
    fc.assert(
      fc.property(addresses, callers, nonces, (address, { principal, uid }, nonce) => {
        const plain = { principal, uid };
        const versioned = { principal, uid, generation: GENERATION };
        expect(matches(rails.grant(address, plain), rails.request(address, versioned, nonce))).toBe(false);
        expect(matches(rails.grant(address, versioned), rails.request(address, plain, nonce))).toBe(false);
      }),
    );
  });

  test.each([me, issued])("W132.11 the reply row %j comes with the deny that keeps its arity", (caller) => {
    const row = rails.replyGrant(caller);
    expect(row.endsWith(`.${UID}${caller.generation === undefined ? "" : `.${GENERATION}`}.*`)).toBe(true);
    expect(permissionsOf([sub("front", row, "")], "front").sub).toEqual({ allow: [row], deny: [`${row}.>`] });
  });
});

describe("PD.06 W132.07 a server's rows", () => {
  const served = rails.serve("com.acme", INSTANCE, "run");

  test("three routes on both rails, the class rail by the queue of the endpoint's own token", () => {
    expect(served.map(({ subject, queue }) => [subject, queue])).toEqual([
      ["cotal.main.ep.one.com_acme.run.>", "com_acme"],
      ["cotal.main.ep.all.com_acme.run.>", undefined],
      [`cotal.main.ep.inst.com_acme.${INSTANCE}.run.>`, undefined],
      ["cotal.main.ep.v1.one.com_acme.run.>", "com_acme"],
      ["cotal.main.ep.v1.all.com_acme.run.>", undefined],
      [`cotal.main.ep.v1.inst.com_acme.${INSTANCE}.run.>`, undefined],
    ]);
  });

  test("PD.06 every form of its command comes in by one of them, and nothing else does", () => {
    fc.assert(
      fc.property(addresses, callers, nonces, (drawn, caller, nonce) => {
        const own = { ...drawn, endpoint: "com.acme", command: "run" };
        const address = own.route === "inst" ? { ...own, instanceId: INSTANCE } : own;
        const heard = (at: CallAddress) => {
          const subject = rails.request(at, caller, nonce);
          return served.filter((row) => matches(row.subject, subject)).map(({ route }) => route);
        };
        expect(heard(address)).toEqual([address.route]);
        expect(heard({ ...address, command: "run-2" })).toEqual([]);
        expect(heard({ ...address, endpoint: "com.acme.x" })).toEqual([]);
        const elsewhere = address.route === "inst" ? { ...address, instanceId: OTHER_INSTANCE } : undefined;
        expect(elsewhere === undefined ? [] : heard(elsewhere)).toEqual([]);
      }),
    );
  });

  test("W132.11 it answers as its own incarnation, to anyone, on both rails and at their exact arity", () => {
    const rows = rails.serveReplies("com.acme", INSTANCE, 3);
    expect(rows).toEqual([
      `cotal.main.ep.reply.com_acme.${INSTANCE}.3.*.*.*.*`,
      `cotal.main.ep.v1.reply.com_acme.${INSTANCE}.3.*.*.*.*.*`,
    ]);
    const reply = (caller: Caller, epoch: number) =>
      rows.filter((row) => {
        const tail = [mine, ...(caller.generation === undefined ? [] : [caller.generation]), NONCE].join(".");
        const rail = caller.generation === undefined ? Rail.Legacy : Rail.Versioned;
        return matches(row, `cotal.main.${rail}.reply.com_acme.${INSTANCE}.${epoch}.${tail}`);
      });
    expect([reply(me, 3), reply(issued, 3)]).toEqual([[rows[0]], [rows[1]]]);
    expect([reply(me, 2), reply(issued, 4)]).toEqual([[], []]);
  });

  test("PD.06 W132.19 it publishes events, timer requests and record writes at its epoch, and arms nothing", () => {
    const at = { endpoint: "com.acme", instanceId: INSTANCE, epoch: 3 };
    const rows = planeGrants("main", at);
    expect(rows).toEqual({
      event: `cotal.main.epe.com_acme.${INSTANCE}.3.>`,
      timer: `cotal.main.ept.com_acme.${INSTANCE}.3.*.schedule`,
      record: `cotal.main.epr.com_acme.${INSTANCE}.3.>`,
    });
    const timer = (stage: "schedule" | "armed" | "fire", epoch: number) =>
      matches(rows.timer, planeSubject("main", { plane: "ept", ...at, epoch, timerId: "t1", timer: stage }));
    expect([timer("schedule", 3), timer("schedule", 2)]).toEqual([true, false]);
    expect([timer("armed", 3), timer("fire", 3)]).toEqual([false, false]);
  });
});
