/**
 * A subscription under the connection's own inbox prefix, for answers of several messages.
 *
 * nats.js's `requestMany` judges answers by an empty body or a status line, and both can come from a
 * stored message that a stranger wrote. So whoever reads copies reads them from here.
 */
import { type NatsConnection, type Subscription, createInbox } from "@nats-io/transport-node";

/** At most `max` messages; then the broker ends it. */
export function answersOf(nc: NatsConnection, max: number): Subscription {
  return nc.subscribe(newInbox(nc), { max });
}

/** A fresh subject below the prefix the connection was opened with (§10, H61). */
export function newInbox(nc: NatsConnection): string {
  // nats.js's own packages read it here; the interface leaves it out.
  const options: unknown = Reflect.get(nc, "options");
  const prefix =
    typeof options === "object" && options !== null ? (Reflect.get(options, "inboxPrefix") as unknown) : "";
  return typeof prefix === "string" && prefix !== "" ? createInbox(prefix) : createInbox();
}
