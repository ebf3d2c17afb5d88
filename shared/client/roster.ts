/**
 * Who is here: read on demand, or watched (§6).
 *
 * Invariants
 * 1. Only a completed read says that somebody is absent; a failed one throws.
 * 2. Every record passes the reader rules of §6; one that fails them is told and left out, and the
 *    others stand.
 * 3. A watch says `current: false` until a whole snapshot is in, again after each reconnect; and it
 *    reads a snapshot anew from time to time, so a dead feed can't freeze it (field cases 16, 17).
 */
import type { Msg, NatsConnection } from "@nats-io/transport-node";
import { CotalError, ErrorCode, Outcome, toCotalError } from "../protocol/base/errors.ts";
import { kvAll, kvKeyOf } from "../protocol/base/broker-subjects.ts";
import { Header, hasProvenance } from "../protocol/base/headers.ts";
import { spaceNames } from "../protocol/base/names.ts";
import { type Principal, isOwnerToken, parseDotForm } from "../protocol/base/principals.ts";
import { LIVENESS_WINDOW_MS, type RosterEntry, readPresence } from "../protocol/chat/presence.ts";
import { type Events, Rail } from "./events.ts";
import type { Reads } from "./reads.ts";
import { headersOf } from "./wire.ts";

const PAGE = 1000;

/** Everybody whose record the space holds, by id; stale ones as `offline`. */
export async function readRoster(reads: Reads, events: Events, now: () => number): Promise<RosterEntry[]> {
  const entries = new Map<string, RosterEntry>();
  let cursor: number | undefined;
  for (;;) {
    const page = await reads.roster({ limit: PAGE, ...(cursor === undefined ? {} : { cursor }) });
    for (const { key, value } of page.records) {
      const read = readPresence(key, value, now());
      if (read.ok) entries.set(key, read.entry);
      else events.rejected(Rail.Presence, "presence", read.why);
    }
    if (page.cursor === undefined) return [...entries.values()];
    if (cursor !== undefined && page.cursor <= cursor) throw stuck();
    cursor = page.cursor;
  }
}

/**
 * The principal that WHO names: `owner.actor`, or a name of the roster. An actor of `owner`, who asks, comes before
 * others that call themselves the same: a name is whatever its bearer says. Two live peers of one name are refused,
 * both listed.
 */
export async function resolveWho(
  who: string,
  roster: () => Promise<RosterEntry[]>,
  owner?: string,
): Promise<Principal> {
  const direct = parseDotForm(who);
  if (direct !== undefined && isOwnerToken(direct.owner)) return direct;
  const named = (await roster()).filter((entry) => entry.name === who);
  const own = named.filter(({ id }) => owner !== undefined && parseDotForm(id)?.owner === owner);
  const first = own.length > 0 ? own : named;
  const live = first.filter((entry) => entry.live);
  const found = live.length > 0 ? live : first;
  const [only] = found;
  if (only === undefined) {
    throw new CotalError(ErrorCode.NotFound, `nobody here is called ${JSON.stringify(who.slice(0, 128))}`, {
      outcome: Outcome.NotExecuted,
      next:
        direct === undefined
          ? "see who is here (cotal who), or write owner.actor, which also reaches somebody away"
          : `${direct.owner} is no owner token: cotal who shows owner.actor of each, such as u_….${direct.actor}`,
    });
  }
  if (found.length > 1) {
    const ids = found.map((entry) => entry.id).toSorted();
    throw new CotalError(
      ErrorCode.Conflict,
      `${found.length} peers are called ${JSON.stringify(who)}: ${ids.join(", ")}`,
      {
        outcome: Outcome.NotExecuted,
        next: "write owner.actor of the one you mean",
        details: ids.map((id) => ({ kind: "ai.cotal.roster.match", id })),
      },
    );
  }
  const principal = parseDotForm(only.id);
  if (principal !== undefined) return principal;
  throw new CotalError(ErrorCode.NotFound, "the peer of that name has no lawful id", { outcome: Outcome.NotExecuted });
}

function stuck(): CotalError {
  return new CotalError(ErrorCode.Internal, "the roster does not advance", {
    outcome: Outcome.Executed,
    next: "check that the daemons and this client are of one version",
  });
}

export type RosterChange =
  | { readonly type: "joined" | "changed" | "left"; readonly entry: RosterEntry }
  /** From here on the view is, or is not, the whole truth. */
  | { readonly type: "current" | "not-current" };

export type RosterWatch = {
  /** False until a whole snapshot is in, and while the connection is down. */
  readonly current: () => boolean;
  readonly entries: () => readonly RosterEntry[];
  readonly stop: () => void;
};

export type RosterWatchOptions = {
  readonly nc: NatsConnection;
  readonly space: string;
  readonly reads: Reads;
  readonly events: Events;
  readonly onChange: (change: RosterChange) => void;
  readonly isUp: () => boolean;
  /** Epoch milliseconds. */
  readonly now: () => number;
};

/** A watch with the hooks that its session calls. */
export type OwnedWatch = RosterWatch & { readonly down: () => void; readonly up: () => void };

const SWEEP_MS = 1000;
const RESNAPSHOT_MS = 30_000;
const RETRY_MS = 2000;

export function watchRoster(options: RosterWatchOptions): OwnedWatch {
  const { nc, events, now, onChange } = options;
  const { presence } = spaceNames(options.space).bucket;
  const entries = new Map<string, RosterEntry>();
  let current = false;
  let stopped = false;
  let reading = false;
  let nextSnapshot = 0;

  const put = (entry: RosterEntry): void => {
    const before = entries.get(entry.id);
    // A snapshot may be older than what came live meanwhile.
    if (before !== undefined && before.ts > entry.ts) return;
    entries.set(entry.id, entry);
    if (entry.live && before?.live !== true) onChange({ type: "joined", entry });
    else if (!entry.live && before?.live === true) onChange({ type: "left", entry });
    else if (before !== undefined && differs(before, entry)) onChange({ type: "changed", entry });
  };
  const away = (entry: RosterEntry): void => {
    if (!entry.live) return;
    const { statusSince: _since, attention: _attention, ...rest } = entry;
    const left: RosterEntry = { ...rest, live: false, status: "offline" };
    entries.set(entry.id, left);
    onChange({ type: "left", entry: left });
  };

  const receive = (message: Msg): void => {
    const headers = headersOf(message);
    if (headers === "unreadable" || hasProvenance(headers?.keys() ?? [])) {
      return events.rejected(Rail.Presence, "stored-copy", "carries a stored-message header");
    }
    const key = kvKeyOf(presence, message.subject);
    if (key === undefined) return;
    if (headers?.get(Header.KvOperation)) {
      const gone = entries.get(key);
      return gone === undefined ? undefined : away(gone);
    }
    const read = readPresence(key, parse(message), now());
    if (read.ok) put(read.entry);
    else events.rejected(Rail.Presence, "presence", read.why);
  };

  const become = (next: boolean): void => {
    if (current === next) return;
    current = next;
    onChange({ type: next ? "current" : "not-current" });
  };
  const snapshot = async (): Promise<void> => {
    if (reading || stopped) return;
    reading = true;
    try {
      for (const entry of await readRoster(options.reads, events, now)) put(entry);
      nextSnapshot = now() + RESNAPSHOT_MS;
      if (!stopped && options.isUp()) become(true);
    } catch (thrown) {
      nextSnapshot = now() + RETRY_MS;
      become(false);
      events.tell({ type: "refused", error: toCotalError(thrown) });
    } finally {
      reading = false;
    }
  };

  const subscription = nc.subscribe(kvAll(presence), {
    callback: (error, message) => {
      if (error === null) receive(message);
    },
  });
  const sweep = (): void => {
    for (const entry of entries.values()) if (now() - entry.ts > LIVENESS_WINDOW_MS) away(entry);
    if (options.isUp() && now() >= nextSnapshot) void snapshot();
  };
  const timer = setInterval(sweep, SWEEP_MS);
  void snapshot();

  return {
    current: () => current,
    entries: () => [...entries.values()],
    down: () => become(false),
    up: () => {
      nextSnapshot = 0;
      void snapshot();
    },
    stop: () => {
      stopped = true;
      clearInterval(timer);
      subscription.unsubscribe();
    },
  };
}

function parse(message: Msg): unknown {
  try {
    return message.json();
  } catch {
    return undefined;
  }
}

/** A heartbeat moves `ts` alone, and is no change. */
function differs(before: RosterEntry, after: RosterEntry): boolean {
  return JSON.stringify({ ...before, ts: 0 }) !== JSON.stringify({ ...after, ts: 0 });
}
