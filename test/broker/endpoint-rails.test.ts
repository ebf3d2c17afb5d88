/**
 * A broker that holds callers to the rows of §13.9 and nothing else: each row opens its own form on its own
 * rail, for its own caller, and nobody reads another's answer or speaks as another incarnation (§13.2).
 *
 * Nobody is issued a generation yet, so the callers of both rails are made here from the rows' builders.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { NatsConnection } from "@nats-io/transport-node";
import { principal } from "../../shared/protocol/base/principals.ts";
import {
  type CallAddress,
  type Caller,
  Route,
  type TargetBlock,
  endpointSubjects,
} from "../../shared/protocol/endpoint/grammar.ts";
import { type BareBroker, type BarePermissions, startBareBroker } from "../support/bare-accounts.ts";
import { MODES } from "../support/endpoint-subjects.ts";
import { type Probe, type Prober, createProber, tap } from "../support/probe.ts";
import { until } from "../support/until.ts";

const SPACE = "rails";
const ENDPOINT = "com.acme.desk";
const INSTANCE = "i".repeat(26);
const EPOCH = 3;
const OWNER = `u_${"a".repeat(26)}`;
const NONCE = `N_${"n".repeat(30)}`;
const rails = endpointSubjects(SPACE);

const legacy: Caller = { principal: principal(OWNER, "asker"), uid: "c".repeat(26) };
const issued: Caller = { ...legacy, generation: "0123456789abcdef0123456789abcdef" };
const CALLERS = [
  ["ep", legacy],
  ["ep.v1", issued],
] as const;
/** The same person's other rails, lifecycles, generations and actors. */
const others = (caller: Caller): Caller[] =>
  [
    legacy,
    issued,
    { ...issued, generation: "f".repeat(32) },
    { ...caller, uid: "d".repeat(26) },
    { ...caller, principal: principal(OWNER, "other") },
    { ...caller, principal: principal(`u_${"e".repeat(26)}`, "asker") },
  ].filter((other) => JSON.stringify(other) !== JSON.stringify(caller));

const TRIPLE = { owner: OWNER, actor: "bob", uid: "t".repeat(26) };
const BLOCKS: readonly (TargetBlock | undefined)[] = [
  undefined,
  ...MODES.map((mode): TargetBlock => {
    if (mode === "self") return { mode };
    return mode === "handle" || mode === "exact" ? { mode, ...TRIPLE } : { mode, owner: OWNER };
  }),
];
const PLACES = [{ route: Route.One }, { route: Route.All }, { route: Route.Inst, instanceId: INSTANCE }] as const;
const ADDRESSES: readonly CallAddress[] = BLOCKS.flatMap((target) =>
  PLACES.map((place): CallAddress => ({
    ...place,
    endpoint: ENDPOINT,
    command: "run",
    ...(target === undefined ? {} : { target }),
  })),
);

/** Everything that anybody could ask: each form on each rail. */
const request = (address: CallAddress, caller: Caller): Probe => ({
  op: "pub",
  subject: rails.request(address, caller, NONCE),
});
const forms = CALLERS.flatMap(([rail, caller]) =>
  ADDRESSES.map((address, at) => ({
    user: `${rail.replace(".", "")}${at}`,
    what: `${rail}.${address.route} ${address.target?.mode ?? "untargeted"}`,
    rail,
    caller,
    address,
  })),
);

const SERVER = "server";
let broker: BareBroker;
const probers = new Map<string, Prober>();
const proberOf = async (user: string): Promise<Prober> => {
  const known = probers.get(user) ?? createProber(await broker.login(user));
  probers.set(user, known);
  return known;
};

beforeAll(async () => {
  const callers = forms.map(({ user, caller, address }): [string, BarePermissions] => [
    user,
    { publish: { allow: [rails.grant(address, caller)] }, subscribe: { allow: [] } },
  ]);
  const readers = CALLERS.map(([rail, caller]): [string, BarePermissions] => [
    `reads ${rail}`,
    {
      publish: { deny: [">"] },
      subscribe: { allow: [rails.replyGrant(caller)], deny: [`${rails.replyGrant(caller)}.>`] },
    },
  ]);
  const server: BarePermissions = {
    publish: { allow: rails.serveReplies(ENDPOINT, INSTANCE, EPOCH) },
    subscribe: {
      allow: rails
        .serve(ENDPOINT, INSTANCE, "run")
        .map(({ subject, queue }) => (queue === undefined ? subject : `${subject} ${queue}`)),
    },
  };
  broker = await startBareBroker({
    A: { users: Object.fromEntries([...callers, ...readers, [SERVER, server], ["root", {}]]) },
  });
});
afterAll(() => broker.end());

describe("W132.08 W132.15 a caller's row", () => {
  test.each(forms)(
    "W132.08 W132.15 of $what opens that form alone, of all modes, routes and rails",
    async ({ user, caller, address }) => {
      const prober = await proberOf(user);
      const every = forms.map((form) => request(form.address, form.caller));
      const own = request(address, caller);
      expect(every).toContainEqual(own);
      expect(await prober.refused(every)).toEqual(
        every.filter((probe) => JSON.stringify(probe) !== JSON.stringify(own)),
      );
    },
  );

  test.each(forms)(
    "W132.08 W132.15 W133.04 of $what is that caller's: no other lifecycle, generation, actor, owner or arity",
    async ({ user, caller, address }) => {
      const prober = await proberOf(user);
      const own = rails.request(address, caller, NONCE);
      const wrong: Probe[] = [
        ...others(caller).map((other) => request(address, other)),
        ...[`${own}.x`, own.slice(0, -NONCE.length - 1)].map((subject): Probe => ({
          op: "pub",
          subject,
        })),
        request({ ...address, command: "other" }, caller),
        request({ ...address, endpoint: "com.acme.other" }, caller),
      ];
      expect(await prober.refused(wrong)).toEqual(wrong);
      expect(await prober.isRefused(request(address, caller))).toBe(false);
    },
  );
});

describe("W132.11 W132.12 answers", () => {
  let root: NatsConnection;
  beforeAll(async () => {
    root = await broker.login("root");
  });
  const answer = (
    caller: Caller,
    over: { readonly instanceId?: string; readonly epoch?: number; readonly endpoint?: string } = {},
  ): string => {
    const { endpoint = ENDPOINT, instanceId = INSTANCE, epoch = EPOCH } = over;
    return rails.replies(endpoint, { instanceId, epoch })(parsed(caller));
  };
  const parsed = (caller: Caller) => ({
    ...caller.principal,
    uid: caller.uid,
    nonce: NONCE,
    ...(caller.generation === undefined ? {} : { generation: caller.generation }),
  });

  test.each(CALLERS)(
    "W132.11 on %s its caller reads its own, at the exact arity, and nothing of anybody else",
    async (rail, caller) => {
      const reader = await broker.login(`reads ${rail}`);
      const own = rails.replyGrant(caller);
      const wrong = [
        ...others(caller).map((other) => rails.replyGrant(other)),
        `${own.slice(0, -1)}>`,
        `${own}.>`,
        own.replace(caller.uid, "*"),
        `cotal.${SPACE}.${rail}.reply.>`,
      ].map((subject): Probe => ({ op: "sub", subject }));
      const prober = createProber(reader);
      // A `>` in place of the tail is a subscription that the deny filters: asked for by what it hears.
      const refused = await prober.refused(wrong);
      const accepted = wrong.filter((probe) => !refused.includes(probe));
      const taps = await Promise.all(
        [own, ...accepted.map(({ subject }) => subject)].map((subject) => tap(reader, subject)),
      );
      for (const other of [caller, ...others(caller)]) root.publish(answer(other));
      root.publish(`${answer(caller)}.more`);
      root.publish(`cotal.${SPACE}.${rail}.reply.end`);
      await root.flush();
      await until("its own came", () => taps[0]?.subjects().length === 1);
      await reader.flush();
      expect(taps[0]?.subjects()).toEqual([answer(caller)]);
      expect(
        taps
          .slice(1)
          .flatMap((one) => one.subjects())
          .filter((subject) => subject !== answer(caller)),
      ).toEqual([]);
      // On the other rail it hears nothing of its own person either.
      expect(refused.length).toBeGreaterThanOrEqual(others(caller).length);
    },
  );

  test("W132.10 W132.12 a server answers any caller on both rails, as its own incarnation and no other, and nowhere beside the reply rail", async () => {
    const prober = await proberOf(SERVER);
    const lawful = CALLERS.map(([, caller]): Probe => ({ op: "pub", subject: answer(caller) }));
    expect(await prober.refused(lawful)).toEqual([]);
    const wrong = CALLERS.flatMap(([rail, caller]) => [
      answer(caller, { epoch: EPOCH - 1 }),
      answer(caller, { epoch: EPOCH + 1 }),
      answer(caller, { instanceId: "j".repeat(26) }),
      answer(caller, { endpoint: "com.acme.other" }),
      `${answer(caller)}.x`,
      `cotal.${SPACE}.${rail}.reply.x`,
      "elsewhere.here",
      "_INBOX.somebody",
      "_INBOX_somebody.x",
    ]).map((subject): Probe => ({ op: "pub", subject }));
    expect(await prober.refused(wrong)).toEqual(wrong);
  });

  test("W132.07 the class rail is read through the queue of the endpoint's name and not otherwise, on both rails", async () => {
    const prober = await proberOf(SERVER);
    const served = rails.serve(ENDPOINT, INSTANCE, "run");
    const subs = served.map(({ subject, queue }): Probe => ({
      op: "sub",
      subject,
      ...(queue === undefined ? {} : { queue }),
    }));
    expect(await prober.refused(subs)).toEqual([]);
    const classRails = served.filter(({ route }) => route === Route.One);
    expect(classRails).toHaveLength(2);
    const wrong = classRails.flatMap(({ subject, queue = "" }): Probe[] => [
      { op: "sub", subject },
      { op: "sub", subject, queue: `${queue}x` },
      { op: "sub", subject, queue: "*" },
    ]);
    expect(await prober.refused(wrong)).toEqual(wrong);
  });
});
