/**
 * What an agent with a valid credential can do to everybody else: floods on every rail it may use,
 * as fast as its connection takes them, without reading what comes back.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { servedBy } from "./space.ts";
import { drawNonce } from "../../shared/protocol/base/principals.ts";
import { kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { spaceNames } from "../../shared/protocol/base/names.ts";
import { spaceSubjects } from "../../shared/protocol/base/subjects.ts";
import { endpointSubjects } from "../../shared/protocol/endpoint/grammar.ts";
import type { Credential } from "../../shared/trust/creds.ts";
import { pooledRandom } from "../../shared/client/random.ts";

const CHUNK = 500;

export type Flooder = {
  readonly posts: (count: number, channel: string, mention: string) => Promise<void>;
  readonly historyRequests: (count: number, channel: string) => Promise<void>;
  /** Requests that are no requests: each wrong in another way. */
  readonly bogusRequests: (count: number) => Promise<void>;
  readonly presence: (count: number) => Promise<void>;
};

export function flooder(nc: NatsConnection, { view }: Credential): Flooder {
  const random = pooledRandom();
  const { space, principal, uid } = view;
  const id = `${principal.owner}.${principal.actor}`;
  const from = { id, name: principal.actor };
  const rails = endpointSubjects(space);
  const caller = { principal, uid };
  /** The broker has taken each chunk before the next goes out; nothing waits in this process. */
  const flood = async (count: number, publish: (number: number) => void): Promise<void> => {
    for (let number = 0; number < count; number += 1) {
      publish(number);
      if (number % CHUNK === CHUNK - 1) await nc.flush();
    }
    await nc.flush();
  };
  const request = (command: string, body: unknown): void => {
    const subject = rails.one(servedBy(command), command, caller, drawNonce(random));
    nc.publish(subject, typeof body === "string" ? body : JSON.stringify(body));
  };
  const envelope = (command: string, args: unknown) => ({
    v: 1,
    id: drawNonce(random),
    op: { endpoint: servedBy(command), command },
    class: "ephemeral",
    replyExpected: true,
    args,
    from,
    deadlineMs: 15_000,
  });
  return {
    posts: (count, channel, mention) => {
      const subject = spaceSubjects(space).chat(principal, channel);
      return flood(count, (number) => {
        const message = {
          id: drawNonce(random),
          ts: Date.now(),
          space,
          from,
          channel,
          ...(number % 2 === 0 ? { mentions: [mention] } : {}),
          parts: [{ kind: "text", text: `flood ${number}` }],
        };
        nc.publish(subject, JSON.stringify(message));
      });
    },
    historyRequests: (count, channel) =>
      flood(count, () => request("history", envelope("history", { channel, last: 500 }))),
    bogusRequests: (count) => {
      const good = envelope("space", {});
      const bogus = [
        "",
        "{",
        "\u0000".repeat(1000),
        "[".repeat(50_000),
        { ...good, v: 99 },
        { ...good, op: { endpoint: "provisioner", command: "mint" } },
        { ...good, from: { id: `${principal.owner}.other`, name: "x" } },
        { ...good, class: "journal" },
        { ...good, deadlineMs: -1 },
        { ...good, args: { channel: ">".repeat(10_000) } },
        { ...good, bind: { instanceId: "x", epoch: 1 } },
      ];
      return flood(count, (number) => request("space", bogus[number % bogus.length]));
    },
    presence: (count) => {
      const subject = kvKey(spaceNames(space).bucket.presence, id);
      return flood(count, (number) => {
        const record = {
          card: { id, name: principal.actor, kind: "agent" },
          status: number % 2 === 0 ? "idle" : "working",
          activity: `busy ${number}`,
          lifecycleUid: uid,
          ts: Date.now(),
        };
        nc.publish(subject, JSON.stringify(record));
      });
    },
  };
}

/**
 * Subscribes to one channel `most` times; how many of the subscriptions stand, by one post that each
 * of them hears. The broker passes over what is above the limit of the credential.
 */
export async function subscribeToTheLimit(
  nc: NatsConnection,
  { view }: Credential,
  channel: string,
  most: number,
): Promise<number> {
  const subjects = spaceSubjects(view.space);
  const heard = new Set<number>();
  for (let number = 0; number < most; number += 1) {
    nc.subscribe(subjects.chatRead(channel), {
      callback: (error) => {
        if (error === null) heard.add(number);
      },
    });
  }
  await nc.flush();
  nc.publish(subjects.chat(view.principal, channel), "{}");
  await nc.flush();
  return heard.size;
}
