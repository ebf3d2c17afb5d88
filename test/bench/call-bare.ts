/**
 * What the `call` bench is compared with, by nats.js alone.
 *
 * `bare`: a request and its reply as nats.js does them. `floor`: what the contract's subjects cost whoever keeps
 * to them: a request subject that never came before, its reply subject subscribed before the publish and ended
 * after, the sentinel as transport reply, the same bytes, the same credential. The floor checks nothing, reads
 * no answer, and has no deadline.
 */
import { createInbox, type Msg, type NatsConnection, type Subscription } from "@nats-io/transport-node";
import { pooledRandom } from "../../shared/client/random.ts";
import { dotForm, drawNonce } from "../../shared/protocol/base/principals.ts";
import { type Caller, Route, endpointSubjects } from "../../shared/protocol/endpoint/grammar.ts";
import { type Args, BARE_ALL, BARE_ONE, COMMAND, EPOCH, FLOOR, SPACE, TEXT } from "./call-contract.ts";
import { complete } from "./jobs.ts";

const ARGS: Args = { text: TEXT };
const rails = endpointSubjects(SPACE);
const ANY_NONCE = "n".repeat(26);

export const bareCall = (nc: NatsConnection): Promise<Msg> => nc.request(BARE_ONE, JSON.stringify(ARGS));

/** One request, and so many replies on an inbox of its own. */
export async function gatherBare(nc: NatsConnection, count: number): Promise<void> {
  const inbox = createInbox();
  const replies = nc.subscribe(inbox, { max: count });
  nc.publish(BARE_ALL, JSON.stringify(ARGS), { reply: inbox });
  let came = 0;
  for await (const _ of replies) came += 1;
  complete("bare scatter", came, count);
}

/** Calls on the contract's subjects. Its sentinel is never answered here: somebody serves. */
export function floorCaller(nc: NatsConnection, caller: Caller, inboxPrefix: string): () => Promise<void> {
  const random = pooledRandom();
  const head = (subject: string): string => subject.slice(0, -ANY_NONCE.length);
  const address = { route: Route.One, endpoint: FLOOR, command: COMMAND } as const;
  const request = head(rails.request(address, caller, ANY_NONCE));
  const reply = head(rails.replyTo(caller, ANY_NONCE, FLOOR));
  const sentinels = `${inboxPrefix}.nr.floor.`;
  nc.subscribe(`${sentinels}*`, { callback: () => undefined });
  const digest = `sha256:${"0".repeat(64)}`;
  const body = {
    v: 1,
    op: { endpoint: FLOOR, command: COMMAND, inputDigest: digest, outputDigest: digest },
    class: "ephemeral",
    replyExpected: true,
    args: ARGS,
    from: { id: dotForm(caller.principal), name: "bench" },
    deadlineMs: 15_000,
  };
  let over: Subscription | undefined;
  return () =>
    new Promise((resolve) => {
      const nonce = drawNonce(random);
      over?.unsubscribe();
      over = undefined;
      const heard = nc.subscribe(`${reply}${nonce}`, {
        callback: () => {
          if (over === undefined) over = heard;
          else heard.unsubscribe();
          resolve();
        },
      });
      const text = JSON.stringify({ id: drawNonce(random), ...body });
      nc.publish(`${request}${nonce}`, text, { reply: `${sentinels}${nonce}` });
    });
}

/** Answers each request on the rail that follows from its subject, with its own arguments. */
export async function serveFloor(nc: NatsConnection, instance: string): Promise<void> {
  const caller = rails.serveReply(FLOOR, instance, EPOCH).replace(/\*.*$/, "");
  const first = rails.serveOne(FLOOR, COMMAND).split(".").length - 1;
  const callback = (_: unknown, { subject, data }: Msg): void => {
    const { id, args } = JSON.parse(Buffer.from(data).toString()) as { readonly id: string; readonly args: Args };
    const tail = subject.split(".").slice(first).join(".");
    nc.publish(`${caller}${tail}`, JSON.stringify({ v: 1, id, ok: true, data: args }));
  };
  for (const { route, subject, queue } of rails.serve(FLOOR, instance, COMMAND)) {
    nc.subscribe(subject, { callback: route === Route.One ? callback : () => undefined, ...(queue && { queue }) });
  }
  await nc.flush();
}
