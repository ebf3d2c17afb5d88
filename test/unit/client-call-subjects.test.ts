/** What is remembered of subjects (§13.2): never another subject than the grammar gives, and no nonce. */
import { randomBytes } from "node:crypto";
import { describe, expect, test } from "vitest";
import { createCallSubjects } from "../../shared/client/call-subjects.ts";
import { drawLifecycleUid, drawNonce } from "../../shared/protocol/base/principals.ts";
import {
  type CallAddress,
  type Caller,
  endpointSubjects,
  parseReplySubject,
  parseRequestSubject,
} from "../../shared/protocol/endpoint/grammar.ts";
import { byHead } from "../../shared/protocol/endpoint/heads.ts";

const SPACE = "main";
const rails = endpointSubjects(SPACE);
const uid = drawLifecycleUid(randomBytes);
const INSTANCE = drawLifecycleUid(randomBytes);
const nonce = (): string => drawNonce(randomBytes);
const legacy: Caller = { principal: { owner: "local", actor: "alice" }, uid };
const issued: Caller = { ...legacy, generation: "0123456789abcdef0123456789abcdef" };
const endpoint = "com.acme.deploy";

const ADDRESSES: readonly CallAddress[] = [
  { route: "one", endpoint, command: "run" },
  { route: "all", endpoint, command: "run" },
  { route: "one", endpoint, command: "stop" },
  { route: "one", endpoint: "com.acme.deploy2", command: "run" },
  { route: "inst", endpoint, instanceId: INSTANCE, command: "run" },
  { route: "one", endpoint, command: "run", target: { mode: "self" } },
  { route: "one", endpoint, command: "run", target: { mode: "owner", owner: "local" } },
  { route: "one", endpoint, command: "run", target: { mode: "exact", owner: "local", actor: "bob", uid } },
];

describe.each([
  ["legacy", legacy],
  ["issued", issued],
])("a caller of always or an issued one: %s", (_what, caller) => {
  const subjects = createCallSubjects(SPACE, caller);

  test.each(ADDRESSES)(
    "W132.04 W132.06: each call of $route $command gets the grammar's subject, nonce and all",
    (address) => {
      for (const drawn of [nonce(), nonce(), nonce()]) {
        expect(subjects(address, drawn)).toEqual({
          request: rails.request(address, caller, drawn),
          reply: rails.replyTo(caller, drawn, address.endpoint),
        });
      }
    },
  );

  test("W132.05: what the grammar refuses is refused, also where a lawful one was built before", () => {
    // A missing token reads as the word, which is a lawful command and a lawful endpoint.
    const words: CallAddress[] = [
      { route: "one", endpoint, command: "undefined" },
      { route: "one", endpoint: "undefined", command: "run" },
    ];
    for (const address of [...ADDRESSES, ...words]) subjects(address, nonce());
    const strange = [
      { route: "one", endpoint: "com.acme.deploy run", command: "" },
      { route: "one", endpoint: "*", command: "run" },
      { route: "one", endpoint, command: "run " },
      { route: "one", endpoint, command: "Run" },
      { route: "some", endpoint, command: "run" },
      { route: "inst", endpoint, instanceId: "short", command: "run" },
      { route: "inst", endpoint, instanceId: undefined, command: "run" },
      { route: "one", endpoint, command: undefined },
      { route: "one", endpoint: undefined, command: "run" },
    ] as unknown as CallAddress[];
    for (const address of strange) expect(() => subjects(address, nonce())).toThrow(/is not|is none of/);
  });
});

describe("a head that was read before", () => {
  const request = (caller: Caller, drawn: string): string => rails.request(ADDRESSES[0] as CallAddress, caller, drawn);
  const reply = (caller: Caller, drawn: string): string =>
    rails.replies(endpoint, { instanceId: INSTANCE, epoch: 7 })({
      ...caller.principal,
      uid,
      nonce: drawn,
      ...(caller.generation === undefined ? {} : { generation: caller.generation }),
    });

  test.each([
    ["request", request, parseRequestSubject],
    ["reply", reply, parseReplySubject],
  ] as const)("W132.06 W132.12: of a %s it is read with the nonce that came now", (_what, build, parse) => {
    for (const caller of [legacy, issued, legacy, issued]) {
      const drawn = nonce();
      expect(parse(build(caller, drawn))).toMatchObject({ ...caller.principal, uid, nonce: drawn, endpoint });
      expect(parse(build(caller, drawn))?.generation).toBe(caller.generation);
      const head = build(caller, drawn).slice(0, -drawn.length);
      for (const wrong of ["", "short", `${drawn}.`, `${drawn}.x`, `${drawn}*`, "*", ">", "n".repeat(65)]) {
        expect(parse(`${head}${wrong}`)).toBeUndefined();
      }
    }
  });

  test("who gets one subject can't change what the next one gets", () => {
    const one = parseRequestSubject(request(legacy, nonce()));
    Object.assign(one ?? {}, { owner: "u_mallory", command: "stop" });
    expect(parseRequestSubject(request(legacy, nonce()))).toMatchObject({ owner: "local", command: "run" });
  });

  test("W132.06: reading is asked for each head once, never about a nonce, and again about what did not read", () => {
    const asked: string[] = [];
    const read = byHead((head) => {
      asked.push(head);
      return head === "a.b" ? { head } : undefined;
    });
    const [first, second] = [nonce(), nonce()];
    expect(read(`a.b.${first}`)).toEqual({ head: "a.b", nonce: first });
    expect(read(`a.b.${second}`)).toEqual({ head: "a.b", nonce: second });
    expect(read(`c.${first}`)).toBeUndefined();
    expect(read(`c.${second}`)).toBeUndefined();
    expect(asked).toEqual(["a.b", "c", "c"]);
    expect(read(first)).toBeUndefined();
    expect(read(`${"a.".repeat(600)}${first}`)).toBeUndefined();
    expect(asked).toHaveLength(3);
  });

  test("more of them than are kept: each is read as it is, and so many are kept at most", () => {
    const asked: string[] = [];
    const read = byHead((head) => {
      asked.push(head);
      return { head };
    });
    const drawn = nonce();
    for (let n = 0; n < 3000; n += 1) expect(read(`h${n}.${drawn}`)).toEqual({ head: `h${n}`, nonce: drawn });
    for (let n = 0; n < 3000; n += 1) read(`h${n}.${drawn}`);
    // Nothing of the beginning was kept until its turn came again.
    expect(asked).toHaveLength(6000);
    const subjects = createCallSubjects(SPACE, legacy);
    for (let n = 0; n < 600; n += 1) {
      const address = { route: "one", endpoint, command: `c${n}` } as const;
      expect(subjects(address, drawn).request).toBe(rails.request(address, legacy, drawn));
    }
  });
});
