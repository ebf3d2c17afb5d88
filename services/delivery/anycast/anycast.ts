/** Anycast of one space (§8.1): the rail, the commands, the notices, the sweep. Composition only. */
import type { NatsConnection } from "@nats-io/transport-node";
import { within } from "../../../shared/client/shutdown.ts";
import type { Writer } from "../../../shared/broker/write.ts";
import { DeliveryCommand as Name } from "../../../shared/grants/commands.ts";
import type { Principal } from "../../../shared/protocol/base/principals.ts";
import type { DELIVERY_CLUSTER } from "../../../shared/protocol/endpoint/delivery-contract.ts";
import type { Handlers } from "../../../shared/serve/serve.ts";
import { createNotices } from "./notices.ts";
import { type RailEvent, serveTakes } from "./rail.ts";
import { type Requests, createRequests } from "./requests.ts";
import { brokerAnycastStore } from "./store.ts";
import { type Swept, keepSweeping, sweepAnycast } from "./sweep.ts";
import { type Untaken, createUntakenWatch } from "./untaken.ts";

export type AnycastEvent =
  | RailEvent
  | { readonly kind: "noticed" }
  | { readonly kind: "notice-failed"; readonly cause: unknown }
  | { readonly kind: "swept"; readonly swept: Swept; readonly untaken: readonly Untaken[] }
  | { readonly kind: "sweep-failed"; readonly cause: unknown };

export type AnycastOptions = {
  readonly space: string;
  readonly me: Principal;
  readonly front: NatsConnection;
  readonly store: NatsConnection;
  readonly concurrency: number;
  readonly perHolder: number;
  readonly onEvent: (event: AnycastEvent) => void;
  /** Tests only: where it dies. */
  readonly writer?: Writer;
  readonly sweepEveryMs?: number;
};

const STOP_MS = 1000;

type Commands = typeof Name.AnycastStatus | typeof Name.AnycastCancel | typeof Name.AnycastTakes;

export type Anycast = {
  readonly handlers: Pick<Handlers<typeof DELIVERY_CLUSTER>, Commands>;
  readonly status: Requests["status"];
  /** Starts to serve takes, and to sweep. */
  readonly begin: () => Promise<void>;
  readonly stop: () => Promise<void>;
};

export function createAnycast(options: AnycastOptions): Anycast {
  const { space, me, onEvent } = options;
  const store = brokerAnycastStore(options.store, space, options.writer);
  const notices = createNotices({
    store,
    space,
    me,
    onPublished: () => onEvent({ kind: "noticed" }),
    onFailed: (cause) => onEvent({ kind: "notice-failed", cause }),
  });
  const requests = createRequests({ store, now: Date.now, onOwed: notices.owe });
  const untaken = createUntakenWatch();
  const pass = async (): Promise<void> => {
    try {
      const swept = await sweepAnycast({ store, requests, notices, now: Date.now });
      onEvent({ kind: "swept", swept, untaken: untaken.look(await store.out(), swept.taken) });
    } catch (cause) {
      onEvent({ kind: "sweep-failed", cause });
    }
  };
  const stops: (() => Promise<void>)[] = [];
  return {
    status: requests.status,
    handlers: {
      [Name.AnycastStatus]: (args, { from }) => requests.status(from, args),
      [Name.AnycastCancel]: (args, { from }) => requests.cancel(from, args),
      [Name.AnycastTakes]: async () => ({ takes: true, epoch: await requests.created() }),
    },
    begin: async () => {
      const { front: nc, concurrency, perHolder } = options;
      const now = (): number => performance.now();
      const rail = await serveTakes({ nc, space, requests, concurrency, perHolder, onEvent, now });
      stops.push(rail.stop, keepSweeping(pass, options.sweepEveryMs).stop);
    },
    // What is cut off here stands in the rows, and whoever comes next finishes it.
    stop: async () => {
      const parts = [...stops.splice(0), notices.stop];
      await within(Promise.all(parts.map((stop) => stop())), STOP_MS);
    },
  };
}
