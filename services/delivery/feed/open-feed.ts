/**
 * The membership feed beside what a space serves: two connections of its own, opened again when they end.
 *
 * Invariant: whatever becomes of them, or of the file with the observer's credential, ends nothing else: people see
 * how old the feed is, and messages go on.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { Connection } from "../../../shared/broker/connect.ts";
import type { LeaseHolder } from "../../../shared/broker/lease.ts";
import type { OwnCredential } from "../../../shared/broker/own-credential.ts";
import { toCotalError } from "../../../shared/protocol/base/errors.ts";
import type { SystemUser } from "../keys.ts";
import { gatherOver } from "../../../shared/broker/gather.ts";
import { type Feed, type FeedEvent, keepFeed } from "./feed.ts";

export type OpenFeedOptions = {
  readonly space: string;
  readonly front: string;
  readonly who: LeaseHolder;
  readonly instanceId: string;
  readonly everyMs: number;
  readonly tell: (event: FeedEvent) => void;
  readonly dial: (name: string, own: Pick<SystemUser, "authenticator" | "inboxPrefix">) => Promise<Connection>;
  /** In the store, as `membership-rw`. */
  readonly writer: OwnCredential;
  /** In the system account, as `membership-observer`. Throws for a file that is wrong. */
  readonly readObserver: () => SystemUser;
};

export type OpenFeed = Feed & {
  /** With what it looks now; `undefined` while it is not connected. */
  readonly observer: () => readonly [SystemUser, Connection] | undefined;
};

const AGAIN_MS = 5000;
const CLOSE_MS = 1000;
const STOP_MS = 3000;

export function openFeed(options: OpenFeedOptions): OpenFeed {
  const stopping = new AbortController();
  let observer: readonly [SystemUser, Connection] | undefined;
  const stopped = new Promise<void>((resolve) => {
    stopping.signal.addEventListener("abort", () => resolve(), { once: true });
  });

  const once = async (): Promise<void> => {
    const opened: Connection[] = [];
    const dial: OpenFeedOptions["dial"] = async (name, own) => {
      const connection = await options.dial(name, own);
      opened.push(connection);
      return connection;
    };
    try {
      const user = options.readObserver();
      const looking = await dial("observer", user);
      const store = await dial("feed", options.writer);
      observer = [user, looking];
      const feed = keepFeed({ ...options, store: store.nc, gather: gatherOver(looking) });
      const cause = await Promise.race([stopped, looking.closed, store.closed]);
      await feed.stop();
      if (cause !== undefined) throw cause;
    } finally {
      observer = undefined;
      await Promise.all(opened.map((connection) => connection.drain(CLOSE_MS)));
    }
  };
  const running = (async () => {
    while (!stopping.signal.aborted) {
      try {
        await once();
      } catch (thrown) {
        if (!stopping.signal.aborted) options.tell({ kind: "failed", error: toCotalError(thrown) });
      }
      await sleep(AGAIN_MS, undefined, { signal: stopping.signal }).catch(() => undefined);
    }
  })();
  return {
    observer: () => observer,
    stop: async () => {
      stopping.abort();
      // A dial that waits for a broker which is away ends with the space.
      await Promise.race([running, sleep(STOP_MS, undefined, { ref: false })]);
    },
  };
}
