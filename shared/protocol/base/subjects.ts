/**
 * The subject table of §3: every wire subject is built here and split here.
 *
 * Siblings: `broker-subjects.ts` holds the broker's own subjects (`$JS`, `$KV`, `$SYS`, inboxes),
 * `../endpoint/grammar.ts` the `ep` rails.
 *
 * Invariants
 * 1. Nobody else writes a string that begins with `cotal.`.
 * 2. `parseSubject` splits only: a split is no proof that the owner token is an owner. The
 *    surfacing check (`isSurfaceable`) is separate (§3).
 * 3. `take`, `live`, `ep…`, `ctl`, `control` and unknown kinds are never a delivery.
 */
import {
  LIFECYCLE_UID,
  MAX_CHANNEL_LENGTH,
  PRINCIPAL_TOKEN,
  REQUEST_NONCE,
  ROLE_TOKEN,
  SPACE_TOKEN,
} from "./grammar.ts";
import { badRequest } from "./errors.ts";
import { isChannel, isChannelPattern, sanitizeToken } from "./channels.ts";
import { type Principal, dotForm, isOwnerToken, parseDotForm, principal } from "./principals.ts";

export const ROOT = "cotal";

/** The kinds that carry deliveries (§3). */
export const DeliveryKind = { Chat: "chat", Inst: "inst", Svc: "svc" } as const;
export type DeliveryKind = (typeof DeliveryKind)[keyof typeof DeliveryKind];

/** The closed set of planes of §6.1. */
export const Plane = { Manager: "manager", Delivery: "delivery" } as const;
export type Plane = (typeof Plane)[keyof typeof Plane];

export function isPlane(value: unknown): value is Plane {
  return value === Plane.Manager || value === Plane.Delivery;
}

/** Prefixes that applications never publish under (§3). */
export const RESERVED_PREFIXES = ["$JS.", "$KV.", "$SYS.", "$O.", "_INBOX."] as const;

export function isReservedSubject(subject: string): boolean {
  return RESERVED_PREFIXES.some((prefix) => subject.startsWith(prefix));
}

/** The wire token of a space: sanitised (§3), at most 32 characters. */
export function spaceToken(space: string): string {
  const token = sanitizeToken(space);
  if (!SPACE_TOKEN.test(token)) {
    throw badRequest(`${JSON.stringify(space.slice(0, 60))} is not a space name`, "use 1 to 32 characters");
  }
  return token;
}

function role(token: string): string {
  if (!ROLE_TOKEN.test(token)) {
    throw badRequest(
      `${JSON.stringify(token.slice(0, 80))} is not a role`,
      "a role is an address: 1 to 64 letters, digits, _ or -",
    );
  }
  return token;
}

function channel(text: string): string {
  if (!isChannel(text)) throw badRequest(`not a concrete channel of at most ${MAX_CHANNEL_LENGTH} characters`);
  return text;
}

function pattern(text: string): string {
  if (!isChannelPattern(text)) throw badRequest("not a channel or pattern");
  return text;
}

function nonceToken(token: string): string {
  if (!REQUEST_NONCE.test(token)) throw badRequest("a nonce is 22 to 64 letters, digits, _ or -");
  return token;
}

/** §6.1: another plane is refused before anything is published, whatever the types say. */
function planeToken(plane: Plane): Plane {
  if (!isPlane(plane)) throw badRequest("there is no such plane", "ask for manager or delivery");
  return plane;
}

function uidToken(uid: string): string {
  if (!LIFECYCLE_UID.test(uid)) throw badRequest("lifecycle UID is malformed");
  return uid;
}

function groupToken(group: number): number {
  if (!Number.isSafeInteger(group) || group < 0) throw badRequest("a member group is a whole number from 0");
  return group;
}

/** The subjects of one space. Builders check their tokens and fail loudly. */
export function spaceSubjects(space: string) {
  const prefix = `${ROOT}.${spaceToken(space)}`;
  const own = (p: Principal) => dotForm(principal(p.owner, p.actor));
  return {
    prefix,
    /** Everything of the space; held by no credential. */
    everything: `${prefix}.>`,
    chat: (sender: Principal, to: string) => `${prefix}.chat.${own(sender)}.${channel(to)}`,
    /** A publish grant: own sender tokens, a channel or pattern. */
    chatGrant: (sender: Principal, to: string) => `${prefix}.chat.${own(sender)}.${pattern(to)}`,
    /** A live subscription or its grant: any sender. */
    chatRead: (to: string) => `${prefix}.chat.*.*.${pattern(to)}`,
    chatAll: `${prefix}.chat.>`,
    inst: (recipient: Principal, sender: Principal) => `${prefix}.inst.${own(recipient)}.${own(sender)}`,
    /** Publish grant: anyone as recipient, only me as sender. */
    instGrant: (sender: Principal) => `${prefix}.inst.*.*.${own(sender)}`,
    /** Filter of a DM durable. */
    instTo: (recipient: Principal) => `${prefix}.inst.${own(recipient)}.>`,
    instAll: `${prefix}.inst.>`,
    svc: (to: string, sender: Principal) => `${prefix}.svc.${role(to)}.${own(sender)}`,
    svcGrant: (sender: Principal) => `${prefix}.svc.*.${own(sender)}`,
    svcTo: (to: string) => `${prefix}.svc.${role(to)}.>`,
    svcAll: `${prefix}.svc.>`,
    take: (of: string, holder: Principal) => `${prefix}.take.${role(of)}.${own(holder)}`,
    takeReply: (of: string, holder: Principal, nonce: string) =>
      `${prefix}.take.${role(of)}.${own(holder)}.reply.${nonceToken(nonce)}`,
    takeReplies: (of: string, holder: Principal) => `${prefix}.take.${role(of)}.${own(holder)}.reply.*`,
    takeServe: `${prefix}.take.*.*.*`,
    takeServeReply: `${prefix}.take.*.*.*.reply.*`,
    live: (plane: Plane, asker: Principal) => `${prefix}.live.${planeToken(plane)}.${own(asker)}`,
    liveReply: (plane: Plane, asker: Principal, nonce: string) =>
      `${prefix}.live.${planeToken(plane)}.${own(asker)}.reply.${nonceToken(nonce)}`,
    liveReplies: (plane: Plane, asker: Principal) => `${prefix}.live.${planeToken(plane)}.${own(asker)}.>`,
    liveServe: (plane: Plane) => `${prefix}.live.${planeToken(plane)}.*.*`,
    liveServeReply: (plane: Plane) => `${prefix}.live.${planeToken(plane)}.*.*.reply.>`,
    dlv: (p: Principal, uid: string) => `${prefix}.dlv.${own(p)}.${uidToken(uid)}`,
    dlvAll: `${prefix}.dlv.>`,
    dlvMarker: (group: number) => `${prefix}.dlvpos.${groupToken(group)}`,
    dlvMarkers: `${prefix}.dlvpos.*`,
    epjAll: `${prefix}.epj.>`,
    epfAll: `${prefix}.epf.>`,
    epeAll: `${prefix}.epe.>`,
    eprAll: `${prefix}.epr.>`,
    epwAll: `${prefix}.epw.>`,
    epcAll: `${prefix}.epc.*`,
    eptSchedule: `${prefix}.ept.*.*.*.*.schedule`,
    eptArmed: `${prefix}.ept.*.*.*.*.armed`,
    eptFire: `${prefix}.ept.*.*.*.*.fire`,
    wfjAll: `${prefix}.wfj.*`,
    ep: `${prefix}.ep`,
  } as const;
}
export type SpaceSubjects = ReturnType<typeof spaceSubjects>;

/** Queue group of a liveness responder (§6.1) and of the take rail (decision H55). */
export const LIVE_QUEUE = (plane: Plane) => `live.${plane}`;
export const TAKE_QUEUE = "take";

/**
 * A split delivery subject. `sender` is the dot-form that `from.id` must equal; `rest` is the
 * channel, the recipient's dot-form, or the role.
 */
export type DeliverySubject = {
  readonly kind: DeliveryKind;
  readonly space: string;
  readonly owner: string;
  readonly actor: string;
  readonly sender: string;
  readonly rest: string;
};

/**
 * Splits a subject by prefix and arity (§3). `undefined` means: no sender, never a delivery.
 * Does not judge the owner token; see `isSurfaceable`.
 */
export function parseSubject(subject: string): DeliverySubject | undefined {
  const tokens = subject.split(".");
  if (tokens[0] !== ROOT || tokens.some((token) => token === "")) return undefined;
  const space = tokens[1];
  if (space === undefined) return undefined;
  switch (tokens[2]) {
    case DeliveryKind.Chat:
      return tokens.length < 6
        ? undefined
        : delivery(DeliveryKind.Chat, space, tokens[3], tokens[4], tokens.slice(5).join("."));
    case DeliveryKind.Inst:
      return tokens.length === 7
        ? delivery(DeliveryKind.Inst, space, tokens[5], tokens[6], `${tokens[3]}.${tokens[4]}`)
        : undefined;
    case DeliveryKind.Svc:
      return tokens.length === 6 ? delivery(DeliveryKind.Svc, space, tokens[4], tokens[5], tokens[3] ?? "") : undefined;
    default:
      return undefined;
  }
}

function delivery(
  kind: DeliveryKind,
  space: string,
  owner: string | undefined,
  actor: string | undefined,
  rest: string,
): DeliverySubject | undefined {
  if (owner === undefined || actor === undefined) return undefined;
  return { kind, space, owner, actor, sender: `${owner}.${actor}`, rest };
}

/**
 * The surfacing check (§3, §9): only a well-formed owner may be shown as a sender. The other tokens
 * must be lawful too: a broker also routes a publish to the literal `team.*`, and in an open space
 * any bytes can stand in a token.
 */
export function isSurfaceable(subject: DeliverySubject): boolean {
  return isOwnerToken(subject.owner) && PRINCIPAL_TOKEN.test(subject.actor) && isTarget(subject);
}

function isTarget({ kind, rest }: DeliverySubject): boolean {
  switch (kind) {
    case DeliveryKind.Chat:
      return isChannel(rest);
    case DeliveryKind.Inst:
      return parseDotForm(rest) !== undefined;
    case DeliveryKind.Svc:
      return ROLE_TOKEN.test(rest);
  }
}

/** Who takes (§8.1), and from the queue of which role. */
export type TakeSubject = Principal & { readonly role: string };

/** Splits a take request (§8.1): svc-like layout, never a delivery. */
export function parseTake(subject: string): TakeSubject | undefined {
  const [root, space, kind, role, owner, actor, ...more] = subject.split(".");
  if (root !== ROOT || !space || kind !== "take" || !role || !owner || !actor || more.length > 0) return undefined;
  return { role, owner, actor };
}

/** True if a reply target lies under its own request subject, as §6.1 and §8.1 ask. */
export function isReplyUnder(request: string, reply: string | undefined): boolean {
  const lead = `${request}.reply.`;
  return reply !== undefined && reply.startsWith(lead) && REQUEST_NONCE.test(reply.slice(lead.length));
}
