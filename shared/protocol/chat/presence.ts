/**
 * Presence (§6): the record an instance writes about itself, and the rules of whoever reads it.
 *
 * Invariants
 * 1. A reader drops a record that could crash or fool it, and says why (`readPresence`).
 * 2. Presence is display: no send gate and no authority ever rests on it (§6).
 * 3. An offline record carries no `statusSince`; a live one is never `offline`.
 */
import { z } from "zod";
import { MAX_NAME_LENGTH, NOT_ONE_LINE, REVERSE_DNS } from "../base/grammar.ts";
import { badRequest } from "../base/errors.ts";

/** Default heartbeat interval and liveness window, in milliseconds (§6). */
export const HEARTBEAT_MS = 2000;
export const LIVENESS_WINDOW_MS = 6000;

/** The wire version we advertise until workflow runs are served (decision H10). */
export const PROTOCOL_VERSION = "0.4";

export const PresenceStatus = z.enum(["idle", "waiting", "working", "offline"]);
export type PresenceStatus = z.infer<typeof PresenceStatus>;

export const AttentionMode = z.enum(["open", "dnd", "focus"]);
export const ChannelMode = z.enum(["quiet", "muted"]);

export const ConditionCode = z.enum([
  "rate_limit",
  "overloaded",
  "auth",
  "billing",
  "budget",
  "context",
  "model",
  "request",
  "server",
  "retrying",
  "approval",
  "input",
  "failed",
]);
export const PresenceCondition = z.looseObject({
  code: ConditionCode,
  source: z.string().optional(),
  message: z.string().optional(),
  since: z.number().optional(),
});
export type PresenceCondition = z.infer<typeof PresenceCondition>;

export const AgentSkill = z.looseObject({
  id: z.string(),
  name: z.string(),
  description: z.string().optional(),
});

export const AgentCard = z.looseObject({
  id: z.string(),
  name: z.string().max(MAX_NAME_LENGTH),
  kind: z.enum(["agent", "endpoint"]),
  role: z.string().optional(),
  description: z.string().optional(),
  tags: z.array(z.string()).optional(),
  skills: z.array(AgentSkill).optional(),
  meta: z.record(z.string(), z.unknown()).optional(),
  protocolVersion: z.string().optional(),
});
export type AgentCard = z.infer<typeof AgentCard>;

/** Flat, advisory `meta` keys of this contract (§6); every other key is reverse-DNS (§11). */
export const RESERVED_META_KEYS = [
  "connector",
  "model",
  "provider",
  "host",
  "cwd",
  "repo",
  "branch",
  "head",
  "sessionKind",
  "sessionId",
  "terminal",
] as const;

export const RUNTIME_SOURCE = "endpoint-process";
export const PresenceRuntime = z.looseObject({
  id: z.string(),
  startedAt: z.number(),
  source: z.literal(RUNTIME_SOURCE),
});
export type PresenceRuntime = z.infer<typeof PresenceRuntime>;

/** What an instance writes. */
export const Presence = z.looseObject({
  card: AgentCard,
  status: PresenceStatus,
  condition: PresenceCondition.optional(),
  environment: z.string().optional(),
  activity: z.string().optional(),
  statusSince: z.number().optional(),
  activitySince: z.number().optional(),
  activeAt: z.number().optional(),
  attention: AttentionMode.optional(),
  lifecycleUid: z.string().optional(),
  runtime: PresenceRuntime.optional(),
  channelModes: z.record(z.string(), ChannelMode).optional(),
  ts: z.number(),
});
export type Presence = z.infer<typeof Presence>;

/** What a reader insists on (§6). Of everything else it takes only what has its type. */
const Readable = z.looseObject({
  card: z.looseObject({
    id: z.string(),
    name: z.string().max(MAX_NAME_LENGTH),
    role: z.string().optional(),
  }),
  status: PresenceStatus,
  activity: z.string().optional(),
  attention: z.string().optional(),
  condition: z.looseObject({ code: z.string() }).optional(),
  ts: z.number(),
});

/** A condition as read: a code this version does not know is still shown. */
export type RosterCondition = {
  readonly code: string;
  readonly source?: string;
  readonly message?: string;
  readonly since?: number;
};

/** A roster entry: what a reader made of a record, at a moment. */
export type RosterEntry = {
  readonly id: string;
  readonly name: string;
  readonly kind: "agent" | "endpoint";
  readonly role?: string;
  /** As observed: `offline` if the record says so or is older than the window. */
  readonly status: PresenceStatus;
  readonly live: boolean;
  readonly activity?: string;
  readonly attention?: string;
  readonly condition?: RosterCondition;
  readonly statusSince?: number;
  readonly activitySince?: number;
  readonly activeAt?: number;
  readonly lifecycleUid?: string;
  readonly runtime?: PresenceRuntime;
  readonly protocolVersion?: string;
  readonly ts: number;
};

export type PresenceRead =
  | { readonly ok: true; readonly entry: RosterEntry }
  | { readonly ok: false; readonly key: string; readonly why: string };

/**
 * Reads one record under its key at `now` (epoch ms). Drops what §6 tells a reader to drop, and
 * says why. `now` earlier than `ts` is no staleness: a backwards clock never ages a peer.
 */
export function readPresence(key: string, value: unknown, now: number, window = LIVENESS_WINDOW_MS): PresenceRead {
  const parsed = Readable.safeParse(value);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    return { ok: false, key, why: `${issue?.path.join(".") ?? ""} ${issue?.message ?? ""}`.trim() };
  }
  const { card, status, ts } = parsed.data;
  if (card.id !== key) return { ok: false, key, why: "card.id is not the key" };
  const live = status !== "offline" && now - ts <= window;
  const raw = parsed.data as Record<string, unknown>;
  const runtime = readRuntime(raw["runtime"]);
  return {
    ok: true,
    entry: {
      id: card.id,
      name: card.name,
      kind: card["kind"] === "endpoint" ? "endpoint" : "agent",
      ...(card.role === undefined ? {} : { role: card.role }),
      status: live ? status : "offline",
      live,
      ...(parsed.data.activity === undefined ? {} : { activity: parsed.data.activity }),
      ...(live && parsed.data.attention !== undefined ? { attention: parsed.data.attention } : {}),
      ...(parsed.data.condition === undefined ? {} : { condition: readCondition(parsed.data.condition) }),
      ...(live ? finite(raw, "statusSince") : {}),
      ...finite(raw, "activitySince"),
      ...finite(raw, "activeAt"),
      ...string(raw, "lifecycleUid"),
      ...(runtime === undefined ? {} : { runtime }),
      ...string(card, "protocolVersion"),
      ts,
    },
  };
}

/*
 * A roster entry is built field by field and never by spreading what came: one object such as
 * `{"toString":null}` in a field that somebody prints would fail the whole roster (§6).
 */

function readCondition(condition: { readonly code: string; readonly [field: string]: unknown }): RosterCondition {
  return {
    code: condition.code,
    ...string(condition, "source"),
    ...string(condition, "message"),
    ...finite(condition, "since"),
  };
}

/** An unknown `source` is unsupported, so there is no runtime then (§6). */
function readRuntime(value: unknown): PresenceRuntime | undefined {
  const parsed = PresenceRuntime.safeParse(value);
  if (!parsed.success) return undefined;
  const { id, startedAt, source } = parsed.data;
  return { id, startedAt, source };
}

function string<K extends string>(record: Record<string, unknown>, field: K): { [key in K]?: string } {
  const value = record[field];
  return typeof value === "string" ? ({ [field]: value } as { [key in K]: string }) : {};
}

function finite<K extends string>(record: Record<string, unknown>, field: K): { [key in K]?: number } {
  const value = record[field];
  return typeof value === "number" && Number.isFinite(value) ? ({ [field]: value } as { [key in K]: number }) : {};
}

/** The shared name check (§6): 1 to 128 characters, one line. Used at mint and at connect. */
export function checkName(name: string): string {
  if (name.length === 0 || name.length > MAX_NAME_LENGTH) {
    throw badRequest(
      `a name has 1 to ${MAX_NAME_LENGTH} characters, and this has ${name.length}`,
      "choose a name within that",
    );
  }
  if (NOT_ONE_LINE.test(name) || !name.isWellFormed()) {
    throw badRequest("a name is one line of well-formed text without control characters");
  }
  return name;
}

/** Checks the `meta` of an own card: reserved flat keys hold strings, others are reverse-DNS (§11). */
export function checkMeta(meta: Record<string, unknown>): void {
  const reserved: readonly string[] = RESERVED_META_KEYS;
  for (const [key, value] of Object.entries(meta)) {
    if (reserved.includes(key)) {
      if (typeof value !== "string") throw badRequest(`meta.${key} must be a string`);
    } else if (!REVERSE_DNS.test(key)) {
      throw badRequest(
        `meta key ${JSON.stringify(key.slice(0, 80))} is neither reserved nor reverse-DNS`,
        "name it under a domain you control, such as com.acme.region",
      );
    }
  }
}
