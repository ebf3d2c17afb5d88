/**
 * Writes the session's own presence record, and nobody else's (§6).
 *
 * Invariants
 * 1. A heartbeat each interval while the session lives, never as `offline`; one final offline record
 *    at the end.
 * 2. `statusSince` moves with status or activity, `activitySince` with activity alone; a heartbeat
 *    moves neither. An offline record carries no `statusSince` and no `attention`.
 * 3. `condition`, `activeAt` and `environment` are relayed and never inferred.
 * 4. `runtime.id` is drawn once per process and lifecycle, and says nothing about host or process.
 */
import { randomFillSync } from "node:crypto";
import { badRequest, toCotalError } from "../protocol/base/errors.ts";
import { kvKey } from "../protocol/base/broker-subjects.ts";
import { bucketStream, spaceNames } from "../protocol/base/names.ts";
import { drawNonce } from "../protocol/base/principals.ts";
import {
  type AgentCard,
  AgentCard as AgentCardSchema,
  PROTOCOL_VERSION,
  type Presence,
  Presence as PresenceSchema,
  type PresenceRuntime,
  RUNTIME_SOURCE,
  checkMeta,
} from "../protocol/chat/presence.ts";
import type { Events } from "./events.ts";
import type { Identity } from "./identity.ts";
import type { Publisher } from "./publisher.ts";

/** What a session says about itself beside its identity (§6). */
export type CardOptions = Partial<Pick<AgentCard, "kind" | "description" | "tags" | "skills" | "meta">>;

/** What changes while it runs. `null` takes a field away; one left out stays as it is. */
export type PresenceChange = {
  readonly status?: Exclude<Presence["status"], "offline">;
  readonly activity?: string | null;
  readonly condition?: NonNullable<Presence["condition"]> | null;
  readonly environment?: string | null;
  readonly attention?: NonNullable<Presence["attention"]>;
  readonly channelModes?: NonNullable<Presence["channelModes"]> | null;
  readonly activeAt?: number;
};

export type PresenceWriter = {
  /** Changes the record and publishes it at once. */
  readonly set: (change: PresenceChange) => void;
  readonly record: () => Presence;
  readonly start: () => void;
  /** After a reconnect: the record may have expired. */
  readonly beat: () => void;
  /** Stops the heartbeat and writes the final offline record. */
  readonly offline: (timeoutMs: number) => Promise<void>;
  readonly stop: () => void;
};

type State = Pick<
  Presence,
  "activity" | "condition" | "environment" | "attention" | "channelModes" | "activeAt" | "activitySince"
> & { readonly status: Exclude<Presence["status"], "offline">; readonly statusSince: number };

/** One id per process and lifecycle (§6 `runtime`). */
const runtimeIds = new Map<string, string>();

function runtimeOf(uid: string): PresenceRuntime {
  const id = runtimeIds.get(uid) ?? drawNonce((count) => randomFillSync(new Uint8Array(count)));
  runtimeIds.set(uid, id);
  return { id, startedAt: Math.round(performance.timeOrigin), source: RUNTIME_SOURCE };
}

export type PresenceOptions = {
  readonly identity: Identity;
  readonly card: CardOptions;
  readonly publisher: Publisher;
  readonly events: Events;
  readonly heartbeatMs: number;
  /** Epoch milliseconds. */
  readonly now: () => number;
};

export function createPresence(options: PresenceOptions): PresenceWriter {
  const { identity, publisher, events, now } = options;
  const card = ownCard(identity, options.card);
  const runtime = runtimeOf(identity.uid);
  const { presence } = spaceNames(identity.space).bucket;
  const subject = kvKey(presence, identity.id);
  let state: State = { status: "idle", statusSince: now(), attention: "open" };
  let timer: NodeJS.Timeout | undefined;
  let failing = false;

  const record = (): Presence => ({ card, ...state, lifecycleUid: identity.uid, runtime, ts: now() });
  const write = async (value: Presence): Promise<void> => {
    try {
      await publisher.publish({ subject, stream: bucketStream(presence), payload: JSON.stringify(value) });
      failing = false;
    } catch (thrown) {
      // Told once per run of failures: heartbeats come every two seconds.
      if (!failing) events.tell({ type: "presence-unwritten", error: toCotalError(thrown) });
      failing = true;
    }
  };
  const beat = (): void => void write(record());
  const stop = (): void => clearInterval(timer);
  return {
    record,
    beat,
    stop,
    set: (change) => {
      const next = applied(state, change, now());
      checked({ card, ...next, ts: now() });
      state = next;
      if (timer !== undefined) beat();
    },
    start: () => {
      beat();
      timer = setInterval(beat, options.heartbeatMs);
    },
    offline: async (timeoutMs) => {
      stop();
      if (timer === undefined) return;
      const { statusSince: _statusSince, attention: _attention, ...rest } = record();
      const late = new Promise<void>((resolve) => {
        setTimeout(resolve, timeoutMs).unref();
      });
      await Promise.race([write({ ...rest, status: "offline" }), late]);
    },
  };
}

function ownCard(identity: Identity, card: CardOptions): AgentCard {
  if (card.meta !== undefined) checkMeta(card.meta);
  const own = {
    id: identity.id,
    name: identity.name,
    kind: card.kind ?? "agent",
    ...(identity.role === undefined ? {} : { role: identity.role }),
    ...(card.description === undefined ? {} : { description: card.description }),
    ...(card.tags === undefined ? {} : { tags: card.tags }),
    ...(card.skills === undefined ? {} : { skills: card.skills }),
    ...(card.meta === undefined ? {} : { meta: card.meta }),
    protocolVersion: PROTOCOL_VERSION,
  };
  const parsed = AgentCardSchema.safeParse(own);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  throw badRequest(`card.${issue?.path.join(".") ?? ""}: ${issue?.message ?? "not lawful"}`);
}

function checked(record: Presence): void {
  const parsed = PresenceSchema.safeParse(record);
  if (parsed.success && record.status !== ("offline" as Presence["status"])) return;
  const issue = parsed.error?.issues[0];
  throw badRequest(
    issue === undefined ? "a live session is never offline" : `presence ${issue.path.join(".")}: ${issue.message}`,
  );
}

/** §6: which moment each report dates. */
function applied(state: State, change: PresenceChange, time: number): State {
  const status = change.status ?? state.status;
  const activity = pick(change.activity, state.activity);
  const activityMoved = activity !== state.activity;
  const moved = status !== state.status || activityMoved;
  const activitySince = activityMoved ? (activity === undefined ? undefined : time) : state.activitySince;
  const condition = pick(change.condition, state.condition);
  const environment = pick(change.environment, state.environment);
  const channelModes = pick(change.channelModes, state.channelModes);
  const attention = change.attention ?? state.attention;
  const activeAt = change.activeAt ?? state.activeAt;
  return {
    status,
    statusSince: moved ? time : state.statusSince,
    ...(activity === undefined ? {} : { activity }),
    ...(activitySince === undefined ? {} : { activitySince }),
    ...(condition === undefined ? {} : { condition }),
    ...(environment === undefined ? {} : { environment }),
    ...(channelModes === undefined ? {} : { channelModes }),
    ...(attention === undefined ? {} : { attention }),
    ...(activeAt === undefined ? {} : { activeAt }),
  };
}

function pick<T>(change: T | null | undefined, before: T | undefined): T | undefined {
  return change === undefined ? before : (change ?? undefined);
}
