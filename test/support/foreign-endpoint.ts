/**
 * Somebody else's server, as small as it can be: raw NATS, this project's contracts as documents, and no part
 * of the serving toolkit. It answers what a test tells it to, lawful or not; and it stands in for the
 * delivery service's reads of artifacts and of the registry.
 */
import { randomBytes } from "node:crypto";
import { type Msg, type NatsConnection, headers } from "@nats-io/transport-node";
import { drawLifecycleUid } from "../../shared/protocol/base/principals.ts";
import type { Contract } from "../../shared/protocol/contract/contract.ts";
import { describeFor } from "../../shared/protocol/contract/descriptor.ts";
import {
  DESCRIBE,
  type EndpointRequestSubject,
  EndpointName,
  deriveReply,
  endpointToken,
  parseRequestSubject,
} from "../../shared/protocol/endpoint/grammar.ts";
import { type RequestFrame, readRequest } from "../../shared/protocol/endpoint/read-envelope.ts";
import type { ShownEndpoint } from "../../shared/protocol/endpoint/reads-shapes.ts";
import { ROOT } from "../../shared/protocol/base/subjects.ts";

export type Received = {
  readonly subject: EndpointRequestSubject;
  readonly request: RequestFrame;
  readonly message: Msg;
  /** Publishes an answer, by default as this server; any object or text. */
  readonly answer: (body: object | string, as?: { readonly instanceId?: string; readonly epoch?: number }) => void;
};

/** Answers by itself, or hands back the data of an answer. `NOTHING`: says nothing. */
export const NOTHING = Symbol("nothing");
export type Behaviour = (received: Received) => unknown;

export type ForeignOptions = {
  readonly nc: NatsConnection;
  readonly space: string;
  readonly endpoint: string;
  readonly instanceId?: string;
  readonly epoch?: number;
  readonly contract?: Contract;
  readonly registrationRevision?: number;
  /** By command; `describe` is answered from the contract unless it is told otherwise. */
  readonly commands: Readonly<Record<string, Behaviour>>;
};

export type Foreign = {
  readonly instanceId: string;
  readonly epoch: number;
  /** Everything that came. */
  readonly received: readonly Received[];
  readonly entry: () => ShownEndpoint;
  readonly stop: () => Promise<void>;
};

export async function startForeign(options: ForeignOptions): Promise<Foreign> {
  const { nc, space, endpoint, contract, registrationRevision = 7, epoch = 3 } = options;
  const instanceId = options.instanceId ?? drawLifecycleUid(randomBytes);
  const received: Received[] = [];
  const commands: Record<string, Behaviour> = {
    ...(contract === undefined
      ? {}
      : {
          [DESCRIBE]: () =>
            describeFor({ endpoint, registrationRevision, contract, publicDescriptor: true }, undefined),
        }),
    ...options.commands,
  };
  const take = async (error: Error | null, message: Msg): Promise<void> => {
    const subject = error === null ? parseRequestSubject(message.subject) : undefined;
    if (subject === undefined) return;
    const read = readRequest(message.data);
    if (!read.ok) return;
    const { request } = read;
    const one: Received = {
      subject,
      request,
      message,
      answer: (body, as = {}) => {
        const target = deriveReply(subject, { instanceId, epoch, ...as });
        nc.publish(target, typeof body === "string" ? body : JSON.stringify({ v: 1, id: request.id, ...body }));
      },
    };
    received.push(one);
    const data = await commands[subject.command]?.(one);
    if (data === NOTHING || !request.replyExpected) return;
    one.answer({ ok: true, data });
  };
  const callback = (error: Error | null, message: Msg): void => void take(error, message);
  const token = endpointToken(endpoint);
  const at = `${ROOT}.${space}.ep`;
  const subscriptions = [
    nc.subscribe(`${at}.one.${token}.>`, { queue: token, callback }),
    nc.subscribe(`${at}.all.${token}.>`, { callback }),
    nc.subscribe(`${at}.inst.${token}.${instanceId}.>`, { callback }),
  ];
  await nc.flush();
  return {
    instanceId,
    epoch,
    received,
    entry: () => ({
      endpoint,
      instanceId,
      owner: "local",
      registrationRevision,
      clusterDigests: [...(contract?.clusterDigests ?? [])],
      protocol: { v: 2 },
      epoch,
      state: "ready",
    }),
    stop: async () => {
      for (const subscription of subscriptions) subscription.unsubscribe();
      await nc.flush();
    },
  };
}

/** What the delivery service tells; a test changes it as it goes. */
export type Told = {
  /** Texts by digest. */
  readonly artifacts: Map<string, string>;
  endpoints: ShownEndpoint[];
};

/** Two of its reads. */
export async function startReads(nc: NatsConnection, space: string, told: Told): Promise<Foreign> {
  return startForeign({
    nc,
    space,
    endpoint: EndpointName.Delivery,
    commands: {
      artifacts: ({ request }) => {
        const { digests } = request.args as { readonly digests: readonly string[] };
        const found = digests.flatMap((digest) => {
          const text = told.artifacts.get(digest);
          return text === undefined ? [] : [{ digest, text }];
        });
        return { artifacts: found, missing: digests.filter((digest) => !told.artifacts.has(digest)) };
      },
      endpoints: () => ({ endpoints: told.endpoints }),
    },
  });
}

export const artifactsOf = (...contracts: readonly Contract[]): Map<string, string> =>
  new Map(contracts.flatMap(({ artifacts }) => artifacts.map(({ digest, text }) => [digest, text] as const)));

/** A message with the broker's status for "no responders", as anybody can write one. */
export function noResponders() {
  return headers(503, "No Responders");
}
