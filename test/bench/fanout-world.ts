/**
 * The space that the whole way of a copy is measured in: a broker with the project's own trust, its provisioner and
 * delivery service as processes, members with a credential each. Its streams have no limits: what waits is counted.
 */
import { jetstreamManager } from "@nats-io/jetstream";
import { spaceNames } from "../../shared/protocol/base/names.ts";
import { dotForm } from "../../shared/protocol/base/principals.ts";
import { spaceSubjects } from "../../shared/protocol/base/subjects.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { type DeliveryService, startDeliveryService } from "../support/delivery-service.ts";
import { type Minted, type TestSpace, startSpace } from "../support/space.ts";
import { markerOf } from "../support/stored-copies.ts";
import { pause } from "./jobs.ts";

export const SPACE = "main";
export const ALL = "bench.>";

export type FanoutWorld = {
  readonly space: TestSpace;
  readonly delivery: DeliveryService;
  /** May read and post in every channel of the bench. */
  readonly member: (actor: string) => Promise<Minted>;
  /** Makes it a durable member from now on. */
  readonly join: (who: Minted, channel: string) => Promise<void>;
  /** Stores so many posts, and resolves once each member has its copies. */
  readonly post: (channel: string, count: number) => Promise<void>;
  /** Whose posts they are. */
  readonly poster: Minted;
  /** Bytes of a post of its own. */
  readonly body: (channel: string) => string;
  readonly close: () => Promise<void>;
};

const AT_ONCE = 1000;

export async function openFanoutWorld(text: string): Promise<FanoutWorld> {
  const space = await startSpace();
  const delivery = startDeliveryService(space);
  const close = async (): Promise<void> => {
    await delivery.kill("SIGTERM");
    await space.stop();
  };
  try {
    await delivery.ready();
    const store = await space.store();
    const { streams } = await jetstreamManager(store);
    const names = spaceNames(SPACE);
    for (const stream of [names.chat, names.dlv]) await streams.update(stream, { max_msgs_per_subject: -1 });
    const member = (actor: string) => space.mint({ actor, subscribe: [ALL], publish: [ALL] });
    const poster = await member("poster");
    const { principal } = poster.view;
    let number = 0;
    const body = (channel: string): string => {
      number += 1;
      const from = { id: dotForm(principal), name: "poster" };
      const id = String(number).padStart(26, "0");
      return JSON.stringify({ id, ts: Date.now(), space: SPACE, from, channel, parts: [{ kind: "text", text }] });
    };
    return {
      space,
      delivery,
      member,
      body,
      poster,
      join: async (who, channel) => {
        const { frontier } = (await space.call("frontier", { channel }, { as: who })) as { frontier: number };
        const args = { channel, cursor: frontier };
        await space.call("durable-join", args, { as: who, endpoint: EndpointName.Delivery });
      },
      post: async (channel, count) => {
        const subject = spaceSubjects(SPACE).chat(principal, channel);
        for (let sent = 1; sent < count; sent += 1) {
          store.publish(subject, body(channel));
          if (sent % AT_ONCE === 0) await store.flush();
        }
        const { seq } = (await store.request(subject, body(channel), { timeout: 60_000 })).json() as { seq: number };
        while (((await markerOf(store))?.sequence ?? 0) < seq) await pause(20);
      },
      close,
    };
  } catch (thrown) {
    await close();
    throw thrown;
  }
}
