/** Takes by hand (§8.1), as a holder's connection would send them: for what no SDK sends. */
import { randomUUID } from "node:crypto";
import type { NatsConnection } from "@nats-io/transport-node";
import { dotForm, type Principal } from "../../shared/protocol/base/principals.ts";
import { AnycastTakesAnswer } from "../../shared/protocol/endpoint/delivery-shapes.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import type { Minted, TestSpace } from "./space.ts";

export type RawHolder = {
  readonly nc: NatsConnection;
  readonly me: Principal;
  readonly role: string;
  /** `ok`, a code, `nobody`, or `silence`. */
  readonly take: (
    body: object | string,
    options?: { readonly reply?: string; readonly ms?: number },
  ) => Promise<string>;
  /** A body that is right, to be changed. */
  readonly body: (seq: number, id: string, change?: object) => Promise<object>;
};

export async function rawHolder(space: TestSpace, minted: Minted, role: string): Promise<RawHolder> {
  const nc = await space.connect(minted);
  const me = minted.view.principal;
  const subject = `cotal.${space.spaces[0] ?? "main"}.take.${role}.${dotForm(me)}`;
  return {
    nc,
    me,
    role,
    take: async (body, { reply = `${subject}.reply.${randomUUID()}`, ms = 4000 } = {}) => {
      const answers = nc.subscribe(reply, { max: 1 });
      nc.publish(subject, typeof body === "string" ? body : JSON.stringify(body), { reply });
      const timer = setTimeout(() => answers.unsubscribe(), ms);
      for await (const message of answers) {
        clearTimeout(timer);
        if (message.headers?.code === 503) return "nobody";
        const said = message.json<{ ok: boolean; code?: string }>();
        return said.ok ? "ok" : String(said.code);
      }
      return "silence";
    },
    body: async (seq, id, change = {}) => {
      const asked = await space.call("anycast-takes", {}, { as: minted, endpoint: EndpointName.Delivery });
      const { epoch } = AnycastTakesAnswer.parse(asked);
      return { from: { id: dotForm(me), name: me.actor }, seq, id, count: 1, epoch, ...change };
    },
  };
}
