/**
 * A server on an open broker, and requests put together by hand, so that each of their parts can be wrong:
 * what the tests of the serving side share. Its handlers count what they have done.
 */
import { randomBytes } from "node:crypto";
import { type NatsConnection, headers } from "@nats-io/transport-node";
import { z } from "zod";
import { type Connection, openConnection } from "../../shared/broker/connect.ts";
import { inboxPrefix } from "../../shared/protocol/base/broker-subjects.ts";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import { OPEN_OWNER, dotForm, drawLifecycleUid, drawNonce, principal } from "../../shared/protocol/base/principals.ts";
import { compileContract } from "../../shared/protocol/contract/contract.ts";
import { defineCluster } from "../../shared/protocol/contract/declare.ts";
import { createValidators } from "../../shared/protocol/contract/validators.ts";
import { EndpointReply } from "../../shared/protocol/endpoint/envelope.ts";
import {
  type CallAddress,
  type Caller,
  type EndpointReplySubject,
  endpointSubjects,
  parseReplySubject,
} from "../../shared/protocol/endpoint/grammar.ts";
import {
  type ServeOptions,
  type ServedEndpoint,
  type ServedEvent,
  handlersOf,
  serveEndpoint,
} from "../../shared/serve/serve.ts";

export const SPACE = "serve";
export const ENDPOINT = "com.acme.desk";
export const EPOCH = 3;
export const rails = endpointSubjects(SPACE);

/** A caller of each rail. */
export const legacy: Caller = { principal: principal(OPEN_OWNER, "asker"), uid: drawLifecycleUid(randomBytes) };
export const issued: Caller = { ...legacy, generation: "0123456789abcdef0123456789abcdef" };

const read = { class: "ephemeral", effect: "read" } as const;
const write = { class: "ephemeral", effect: "write" } as const;

export const DESK = defineCluster({
  urn: "com.acme.desk.v1",
  revision: 4,
  commands: [
    { name: "put", ...write, input: z.strictObject({ n: z.int() }), output: z.strictObject({ put: z.int() }) },
    { name: "ping", ...read },
    { name: "aim", ...write, modes: ["self", "owner", "any"], input: z.strictObject({ n: z.int() }) },
    /** Does what it is told: `how` names the end of the handler. */
    {
      name: "end",
      ...write,
      input: z.strictObject({ how: z.string() }),
      output: z.strictObject({ fine: z.boolean() }),
    },
  ],
});
export const contract = compileContract([DESK], createValidators());

export const pins = (command: string): { readonly inputDigest: string; readonly outputDigest: string } => {
  const document = contract.commands.get(command)?.document;
  return { inputDigest: document?.inputDigest ?? "", outputDigest: document?.outputDigest ?? "" };
};

export type Counts = Record<"put" | "ping" | "aim" | "end", number>;

const refuses = (outcome?: Outcome): CotalError =>
  new CotalError(ErrorCode.Conflict, "somebody was first", outcome === undefined ? {} : { outcome });

/** How a handler may end. */
const ENDS: Readonly<Record<string, () => unknown>> = {
  well: () => ({ fine: true }),
  "refused, saying nothing": () => {
    throw refuses();
  },
  "refused, not executed": () => {
    throw refuses(Outcome.NotExecuted);
  },
  "refused, executed": () => {
    throw refuses(Outcome.Executed);
  },
  "with a fault": () => {
    throw new TypeError("a fault");
  },
  "with a wrong answer": () => ({ fine: "yes" }),
  "with one field too many": () => ({ fine: true, secret: "hunter2" }),
  "with nothing": () => undefined,
  "with what is no JSON": () => ({ fine: 1n }),
};

export function deskHandlers(counts: Counts) {
  return handlersOf(DESK, {
    put: ({ n }) => {
      counts.put += 1;
      return Promise.resolve({ put: n });
    },
    ping: () => {
      counts.ping += 1;
      return Promise.resolve(undefined);
    },
    aim: () => {
      counts.aim += 1;
      return Promise.resolve(undefined);
    },
    end: async ({ how }) => {
      counts.end += 1;
      return (await ENDS[how]?.()) as { fine: boolean };
    },
  });
}

export async function dial(url: string, name: string): Promise<Connection> {
  const prefix = inboxPrefix(drawLifecycleUid(randomBytes), drawNonce(randomBytes));
  return openConnection({ servers: [url], inboxPrefix: prefix, name, reconnect: { kind: "endless" } });
}

export type Desk = ServedEndpoint & {
  readonly instanceId: string;
  readonly counts: Counts;
  readonly events: ServedEvent[];
};

export async function startDesk(nc: NatsConnection, over: Partial<ServeOptions> = {}): Promise<Desk> {
  const counts: Counts = { put: 0, ping: 0, aim: 0, end: 0 };
  const events: ServedEvent[] = [];
  const instanceId = over.instanceId ?? drawLifecycleUid(randomBytes);
  const served = await serveEndpoint({
    nc,
    space: SPACE,
    endpoint: ENDPOINT,
    epoch: EPOCH,
    contract,
    handlers: deskHandlers(counts),
    registrationRevision: () => 11,
    publicDescriptor: true,
    checkTarget: () => Promise.resolve(),
    concurrency: 64,
    perCaller: 64,
    onServed: (event) => void events.push(event),
    now: () => performance.now(),
    ...over,
    instanceId,
  });
  return { ...served, instanceId, counts, events };
}

export type Request = {
  /** Over the lawful body. */
  readonly over?: object;
  readonly at?: Partial<CallAddress>;
  readonly caller?: Caller;
  /** Names of headers, each with an empty value. */
  readonly headers?: readonly string[];
  /** The transport's own reply subject. */
  readonly replyTo?: string;
  /** How many answers are awaited: the wait ends with them. */
  readonly answers?: number;
};

export type Heard = { readonly by: EndpointReplySubject; readonly reply: EndpointReply };

/** The lawful body of a request. */
export function bodyOf(command: string, caller: Caller = legacy): Record<string, unknown> {
  return {
    v: 1,
    id: "r1",
    op: { endpoint: ENDPOINT, command, ...pins(command) },
    class: "ephemeral",
    replyExpected: true,
    args: { n: 1 },
    from: { id: dotForm(caller.principal), name: "asker" },
    deadlineMs: 5000,
  };
}

/** Silence is believed after this long. */
const SILENCE_MS = 400;

/** Publishes one request and gives back whatever is answered. */
export async function ask(nc: NatsConnection, command: string, request: Request = {}): Promise<Heard[]> {
  const { over = {}, caller = legacy, answers = 1 } = request;
  const nonce = drawNonce(randomBytes);
  const address = { route: "one", endpoint: ENDPOINT, command, ...request.at } as CallAddress;
  const sub = nc.subscribe(rails.replyTo(caller, nonce), { max: answers });
  const sent = headers();
  for (const name of request.headers ?? []) sent.set(name, "");
  nc.publish(rails.request(address, caller, nonce), JSON.stringify({ ...bodyOf(command, caller), ...over }), {
    ...(request.headers === undefined ? {} : { headers: sent }),
    ...(request.replyTo === undefined ? {} : { reply: request.replyTo }),
  });
  const timer = setTimeout(() => sub.unsubscribe(), SILENCE_MS);
  const heard: Heard[] = [];
  for await (const message of sub) {
    const by = parseReplySubject(message.subject);
    if (by !== undefined) heard.push({ by, reply: EndpointReply.parse(message.json()) });
  }
  clearTimeout(timer);
  return heard;
}

/** The one answer, as `code outcome`, or `ok`. */
export async function verdict(nc: NatsConnection, command: string, request: Request = {}): Promise<string> {
  const [heard] = await ask(nc, command, request);
  if (heard === undefined) return "silence";
  const { reply } = heard;
  return reply.ok ? "ok" : `${reply.error.code} ${reply.error.outcome ?? ""}`;
}
