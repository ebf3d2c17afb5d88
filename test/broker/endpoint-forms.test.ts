/**
 * Every form of §13.2's table over a real broker, on both rails, with subjects that are spelled here by hand:
 * what is served, for whom, where its answer goes, and that nothing beside a form is ever handled.
 */
import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import type { Connection } from "../../shared/broker/connect.ts";
import { CotalError, ErrorCode } from "../../shared/protocol/base/errors.ts";
import { drawLifecycleUid } from "../../shared/protocol/base/principals.ts";
import { compileContract } from "../../shared/protocol/contract/contract.ts";
import { defineCluster } from "../../shared/protocol/contract/declare.ts";
import { createValidators } from "../../shared/protocol/contract/validators.ts";
import { EndpointReply } from "../../shared/protocol/endpoint/envelope.ts";
import { DetailKind } from "../../shared/protocol/endpoint/error-codes.ts";
import { handlersOf } from "../../shared/serve/handlers.ts";
import { MODES } from "../support/endpoint-subjects.ts";
import { type TestBroker, startBroker } from "../support/nats-server.ts";
import { type Tap, publishOptions, tap } from "../support/probe.ts";
import { type Desk, dial, startDesk } from "../support/serve-rig.ts";
import { until } from "../support/until.ts";

const AT = "com_acme_forms";
const INSTANCE = drawLifecycleUid(randomBytes);
const EPOCH = 3;
const OWNER = `u_${"a".repeat(26)}`;
const UID = "c".repeat(26);
const CALLER = `${OWNER}.asker.${UID}`;
const GENERATION = "0123456789abcdef0123456789abcdef";
const T_OWNER = `u_${"b".repeat(26)}`;
const T_UID = "t".repeat(26);
const TARGET = { owner: T_OWNER, actor: "bob", lifecycleUid: T_UID };

const FORMS = defineCluster({
  urn: "com.acme.forms.v1",
  revision: 1,
  commands: [
    { name: "plain", class: "ephemeral", effect: "write", output: z.looseObject({}) },
    { name: "aimed", class: "ephemeral", effect: "write", modes: [...MODES], output: z.looseObject({}) },
  ],
});
const contract = compileContract([FORMS], createValidators());

/** The blocks after the command, with the tokens that §13.2 counts for the class form. */
const BLOCKS: readonly (readonly [mode: string, block: readonly string[], tokens: number])[] = [
  ["untargeted", [], 10],
  ["self", ["self"], 11],
  ["owner", ["owner", T_OWNER], 12],
  ["any", ["any", T_OWNER], 12],
  ["child", ["child", T_OWNER], 12],
  ["ledger", ["ledger", T_OWNER], 12],
  ["handle", ["handle", T_OWNER, "bob", T_UID], 14],
  ["exact", ["exact", T_OWNER, "bob", T_UID], 14],
];
const ROUTES: readonly (readonly [route: string, place: readonly string[]])[] = [
  ["one", ["one", AT]],
  ["all", ["all", AT]],
  ["inst", ["inst", AT, INSTANCE]],
];
const RAILS: readonly (readonly [rail: string, generation: readonly string[]])[] = [
  ["ep", []],
  ["ep.v1", [GENERATION]],
];

type Form = {
  readonly what: string;
  readonly subject: (nonce: string) => string;
  readonly answer: (nonce: string) => string;
  /** By the table. */
  readonly tokens: number;
  readonly mode: string;
  readonly body: Record<string, unknown>;
  /** Whom the handler has to be told. */
  readonly target: object | undefined;
};

const bodyOf = (mode: string): Record<string, unknown> => {
  const command = mode === "untargeted" ? "plain" : "aimed";
  const { inputDigest, outputDigest } = contract.commands.get(command)?.document ?? {};
  return {
    v: 1,
    id: "r1",
    op: { endpoint: "com.acme.forms", command, inputDigest, outputDigest },
    class: "ephemeral",
    replyExpected: true,
    from: { id: `${OWNER}.asker`, name: "asker" },
    deadlineMs: 5000,
    ...(mode === "untargeted" || mode === "self" ? {} : { target: TARGET }),
  };
};
const targetOf = (mode: string): object | undefined => {
  if (mode === "untargeted") return undefined;
  return mode === "self" ? { owner: OWNER, actor: "asker", lifecycleUid: UID } : TARGET;
};

const TABLE: readonly Form[] = BLOCKS.flatMap(([mode, block, tokens]) =>
  ROUTES.flatMap(([route, place]) =>
    RAILS.map(([rail, generation]): Form => {
      const command = mode === "untargeted" ? "plain" : "aimed";
      const end = [CALLER, ...generation].join(".");
      return {
        what: `${rail}.${route} ${mode}`,
        subject: (nonce) => `cotal.serve.${rail}.${[...place, command, ...block].join(".")}.${end}.${nonce}`,
        answer: (nonce) => `cotal.serve.${rail}.reply.${AT}.${INSTANCE}.${EPOCH}.${end}.${nonce}`,
        tokens: tokens + place.length - 2 + 2 * generation.length,
        mode,
        body: bodyOf(mode),
        target: targetOf(mode),
      };
    }),
  ),
);

let broker: TestBroker;
let asker: Connection;
let server: Connection;
let desk: Desk;
/** Everything that anybody publishes. */
let all: Tap;
/** What was done, in order. */
const steps: unknown[] = [];
/** Says what has become of a target; a test puts its own. */
let currency: () => void = () => undefined;

beforeAll(async () => {
  broker = await startBroker();
  asker = await dial(broker.url, "asker");
  server = await dial(broker.url, "server");
  const does =
    (command: string) =>
    (_: undefined, { from, caller, target }: { from: string; caller: object; target: unknown }) => {
      steps.push(command);
      return Promise.resolve({ from, caller, ...(target === undefined ? {} : { target }) });
    };
  desk = await startDesk(server.nc, {
    endpoint: "com.acme.forms",
    instanceId: INSTANCE,
    epoch: EPOCH,
    contract,
    handlers: handlersOf(FORMS, { plain: does("plain"), aimed: does("aimed") }),
    checkTarget: async (target) => {
      steps.push(["check", target]);
      currency();
    },
  });
  all = await tap(asker.nc, ">");
});
beforeEach(() => {
  steps.length = 0;
  desk.events.length = 0;
  all.messages.length = 0;
  currency = () => undefined;
});
afterAll(async () => {
  await asker.close();
  await server.close();
  await broker.stop();
});

/** Like no UID and no generation, so that two tokens in exchange are no other form. */
const drawNonce = (): string => `N_${randomBytes(16).toString("hex")}`;

/** Publishes, and hands back everything else that was said, once this request is over. */
async function asked(
  subject: string,
  body: Record<string, unknown>,
  more: { readonly reply?: string } = {},
): Promise<[string, unknown][]> {
  const id = `r-${drawNonce()}`;
  asker.nc.publish(subject, JSON.stringify({ ...body, id }), publishOptions(more));
  await until("it was answered", () => desk.events.some(({ requestId }) => requestId === id), 4000);
  await server.nc.flush();
  await asker.nc.flush();
  const said = all.messages.filter((message) => message.subject !== subject);
  return said.map((message) => [message.subject, message.json()]);
}

describe("W132.03 each form", () => {
  test("W132.03 W132.15 the table has 48 of them", () => {
    expect(new Set(TABLE.map(({ subject }) => subject("n"))).size).toBe(48);
  });

  test.each(TABLE)(
    "W132.03 W132.10 W132.15 $what: served for the caller and target of its subject, answered on its own rail and nowhere else",
    async ({ subject, answer, tokens, body, target }) => {
      const nonce = drawNonce();
      expect(subject(nonce).split(".")).toHaveLength(tokens);
      // Wherever a caller would like the answer to go, by its payload or by the transport, it does not go there.
      const wished = { reply: "stolen.a", replyTo: "stolen.b", reply_to: "stolen.c", replySubject: "stolen.d" };
      const sent = { ...body, ...wished, from: { ...(body["from"] as object), ...wished } };
      const heard = await asked(subject(nonce), sent, { reply: "stolen.e" });
      expect(heard.map(([at]) => at)).toEqual([answer(nonce)]);
      expect(heard[0]?.[1]).toMatchObject({
        ok: true,
        data: {
          from: `${OWNER}.asker`,
          caller: { principal: { owner: OWNER, actor: "asker" }, uid: UID },
          ...(target === undefined ? {} : { target }),
        },
      });
      expect(steps.filter((step) => typeof step === "string")).toEqual([
        body["target"] === undefined && target === undefined ? "plain" : "aimed",
      ]);
    },
  );
});

describe("W132.04 beside each form", () => {
  /** One token less, one more, two exchanged: none of them is a form for this body. */
  const beside = (subject: string): string[] => {
    const tokens = subject.split(".");
    const first = 3;
    const places = tokens.map((_, at) => at).filter((at) => at >= first);
    return [
      ...places.map((at) => tokens.toSpliced(at, 1)),
      ...places.map((at) => tokens.toSpliced(at, 0, tokens[at] ?? "")),
      ...places.slice(1).map((at) => tokens.with(at - 1, tokens[at] ?? "").with(at, tokens[at - 1] ?? "")),
      ...MODES.map((mode) => [...tokens, mode]),
    ].map((changed) => changed.join("."));
  };

  test.each(TABLE)(
    "W132.04 W132.05 $what with a token less, more or swapped runs nothing, and nobody is told that it did",
    async ({ subject, body }) => {
      const nonce = drawNonce();
      const wrong = beside(subject(nonce)).filter((one) => one !== subject(nonce));
      expect(wrong.length).toBeGreaterThan(25);
      for (const one of wrong) asker.nc.publish(one, JSON.stringify(body));
      await asker.nc.flush();
      const heard = await asked(subject(drawNonce()), body);
      // The lawful one that follows them ran, and nothing else did.
      expect(steps.filter((step) => typeof step === "string")).toHaveLength(1);
      const replies = heard.filter(([at]) => at.includes(".reply.")).map(([, reply]) => EndpointReply.parse(reply));
      const said = replies.map((reply) => (reply.ok ? "ok" : (reply.error.outcome ?? ""))).toSorted();
      expect(said).toEqual([...said.slice(1).map(() => "not-executed"), "ok"]);
      expect(desk.events.filter(({ result }) => result === "ok")).toHaveLength(1);
    },
  );

  test.each([
    ["a nonce of 21 characters", (form: Form) => form.subject("n".repeat(21))],
    ["a nonce of 65 characters", (form: Form) => form.subject("n".repeat(65))],
    ["an owner that is none", (form: Form) => form.subject("n".repeat(22)).replace(CALLER, `acme.asker.${UID}`)],
    ["a short UID", (form: Form) => form.subject("n".repeat(22)).replace(CALLER, `${OWNER}.asker.${UID.slice(1)}`)],
    [
      "an actor of 65 characters",
      (form: Form) => form.subject("n".repeat(22)).replace(CALLER, `${OWNER}.${"a".repeat(65)}.${UID}`),
    ],
  ])("W132.04 W132.05 %s has no sender, on any form: dropped, unanswered", async (_, spell) => {
    for (const form of TABLE) asker.nc.publish(spell(form), JSON.stringify(form.body));
    await until("all were looked at", () => desk.events.length === TABLE.length);
    expect(new Set(desk.events.map(({ result }) => result))).toEqual(new Set(["dropped"]));
    await server.nc.flush();
    await asker.nc.flush();
    expect(all.subjects().filter((at) => at.includes(".reply."))).toEqual([]);
    expect(steps).toEqual([]);
  });
});

describe("W132.09 whether a target is still so", () => {
  const aimed = TABLE.filter(({ mode }) => mode !== "untargeted");
  const foreign = aimed.filter(({ mode }) => mode !== "self");

  test.each(aimed)(
    "W132.09 $what: asked of each request anew, right before it is done",
    async ({ subject, body, target }) => {
      for (let turn = 0; turn < 2; turn += 1) await asked(subject(drawNonce()), body);
      expect(steps).toEqual([["check", target], "aimed", ["check", target], "aimed"]);
    },
  );

  test.each(foreign)(
    "W132.09 $what: another target than the subject's is target-mismatch, before anybody is asked",
    async ({ subject, body }) => {
      const [heard] = await asked(subject(drawNonce()), { ...body, target: { ...TARGET, owner: OWNER } });
      expect(heard?.[1]).toMatchObject({ error: { code: "target-mismatch", outcome: "not-executed" } });
      expect(steps).toEqual([]);
    },
  );

  test.each(foreign)(
    "W132.09 W133.08 $what: one that is gone, or has no mapping here, is expired with its kind, and nothing was done",
    async ({ subject, body }) => {
      for (const details of [[], [{ kind: DetailKind.TargetUnmapped }]]) {
        currency = () => {
          throw new CotalError(ErrorCode.Expired, "the target is another lifecycle now", { details });
        };
        all.messages.length = 0;
        const [heard] = await asked(subject(drawNonce()), body);
        expect(heard?.[1]).toMatchObject({ error: { code: "expired", outcome: "not-executed" } });
        const reply = EndpointReply.parse(heard?.[1]);
        expect(reply.ok || (reply.error.details ?? [])).toEqual(details);
      }
      expect(DetailKind.TargetUnmapped).toBe("ai.cotal.ep.target-unmapped");
      expect(steps).toEqual([
        ["check", TARGET],
        ["check", TARGET],
      ]);
    },
  );
});
