/**
 * Subjects of the planes beside the rails (§13.2): events, facts, submissions, timers, record writes,
 * artifacts, work items, sessions.
 *
 * Invariants
 * 1. The planes are disjoint by their third token, so who may submit can't write a fact.
 * 2. What an instance publishes carries its id and its epoch: a superseded process is told from the
 *    current one by the subject.
 * 3. A targeted submission carries the same target block as a request. It has no nonce: its decision is
 *    a fact, not a reply.
 */
import { ID_TOKEN, SPACE_TOKEN } from "../base/grammar.ts";
import { badRequest } from "../base/errors.ts";
import { ROOT, spaceToken } from "../base/subjects.ts";
import { type Values, form, joinSubject, splitSubject } from "./forms.ts";
import { type TargetBlock, blockTokens, takeBlock } from "./modes.ts";

type Published = Values<"endpoint" | "instanceId" | "epoch">;

export type PlaneAddress =
  | ({ readonly plane: "epe"; readonly topic: string } & Published)
  | ({ readonly plane: "epf"; readonly topic: string } & Values<"endpoint">)
  | ({ readonly plane: "epj"; readonly target?: TargetBlock } & Values<
      "endpoint" | "command" | "owner" | "actor" | "uid"
    >)
  | ({ readonly plane: "ept" } & Published & Values<"timerId" | "timer">)
  | ({ readonly plane: "epr"; readonly qualifier: string } & Published & Values<"kind">)
  | ({ readonly plane: "epc" } & Values<"digest">)
  | ({ readonly plane: "epw" } & Values<"endpoint" | "pool" | "owner" | "actor" | "uid" | "id">)
  | ({ readonly plane: "eps" } & Values<"endpoint" | "sessionId" | "epoch" | "side">);

export type PlaneSubject = PlaneAddress & { readonly space: string };

const EVENT = form("endpoint", "instanceId", "epoch");
const FACT = form("endpoint");
const COMMAND = form("endpoint", "command");
const CALLER = form("owner", "actor", "uid");
const TIMER = form("endpoint", "instanceId", "epoch", "timerId", "timer");
const RECORD = form("endpoint", "instanceId", "epoch", "kind");
const ARTIFACT = form("digest");
const WORK = form("endpoint", "pool", "owner", "actor", "uid", "id");
const SESSION = form("endpoint", "sessionId", "epoch", "side");

export function planeSubject(space: string, address: PlaneAddress): string {
  return joinSubject([ROOT, spaceToken(space), address.plane, ...tokensOf(address)]);
}

function tokensOf(address: PlaneAddress): string[] {
  switch (address.plane) {
    case "epe":
      return [...EVENT.write(address), ...moreTokens(address.topic)];
    case "epf":
      return [...FACT.write(address), ...moreTokens(address.topic)];
    case "epj":
      return [...COMMAND.write(address), ...blockTokens(address.target), ...CALLER.write(address)];
    case "ept":
      return TIMER.write(address);
    case "epr":
      return [...RECORD.write(address), ...moreTokens(address.qualifier)];
    case "epc":
      return ARTIFACT.write(address);
    case "epw":
      return WORK.write(address);
    case "eps":
      return SESSION.write(address);
  }
}

/** Splits a subject of a plane; `undefined` for every other shape. */
export function parsePlaneSubject(subject: string): PlaneSubject | undefined {
  const [root, space, plane, ...tokens] = splitSubject(subject);
  if (root !== ROOT || space === undefined || !SPACE_TOKEN.test(space)) return undefined;
  const address = readAddress(plane, tokens);
  return address === undefined ? undefined : { space, ...address };
}

function readAddress(plane: string | undefined, tokens: readonly string[]): PlaneAddress | undefined {
  switch (plane) {
    case "epe":
      return withMore(EVENT.read(tokens.slice(0, 3)), tokens.slice(3), (at, topic) => ({ plane, ...at, topic }));
    case "epf":
      return withMore(FACT.read(tokens.slice(0, 1)), tokens.slice(1), (at, topic) => ({ plane, ...at, topic }));
    case "epr":
      return withMore(RECORD.read(tokens.slice(0, 4)), tokens.slice(4), (at, qualifier) => ({
        plane,
        ...at,
        qualifier,
      }));
    case "epj":
      return readSubmission(tokens);
    case "ept":
      return on(TIMER.read(tokens), (at) => ({ plane, ...at }));
    case "epc":
      return on(ARTIFACT.read(tokens), (at) => ({ plane, ...at }));
    case "epw":
      return on(WORK.read(tokens), (at) => ({ plane, ...at }));
    case "eps":
      return on(SESSION.read(tokens), (at) => ({ plane, ...at }));
    default:
      return undefined;
  }
}

function readSubmission(tokens: readonly string[]): PlaneAddress | undefined {
  const command = COMMAND.read(tokens.slice(0, 2));
  const block = takeBlock(tokens.slice(2));
  const caller = block === undefined ? undefined : CALLER.read(block.rest);
  if (command === undefined || block === undefined || caller === undefined) return undefined;
  return { plane: "epj", ...command, ...(block.target === undefined ? {} : { target: block.target }), ...caller };
}

/** `<topic...>` and `<qualifier...>`: one token or more. What stands in them is the family's to say. */
function moreTokens(text: string): string[] {
  const tokens = text.split(".");
  if (!tokens.every((token) => ID_TOKEN.test(token))) {
    throw badRequest("a topic or qualifier is made of tokens of 1 to 64 letters, digits, _ or -");
  }
  return tokens;
}

function withMore<T, U>(at: T | undefined, more: readonly string[], build: (at: T, text: string) => U): U | undefined {
  if (at === undefined || more.length === 0 || !more.every((token) => ID_TOKEN.test(token))) return undefined;
  return build(at, more.join("."));
}

function on<T, U>(at: T | undefined, build: (at: T) => U): U | undefined {
  return at === undefined ? undefined : build(at);
}

/** Publish grants of one incarnation on the planes it writes to (supplement E). */
export function planeGrants(space: string, published: Published): { event: string; timer: string; record: string } {
  const at = EVENT.write(published);
  const grant = (plane: string, tail: readonly string[]) =>
    joinSubject([ROOT, spaceToken(space), plane, ...at, ...tail]);
  return { event: grant("epe", [">"]), timer: grant("ept", ["*", "schedule"]), record: grant("epr", [">"]) };
}
