/**
 * The reserved topics of events and of facts (§13.2).
 *
 * Invariants
 * 1. What belongs to a caller carries the caller's triple: read containment is a matter of the subject,
 *    and two callers who choose the same id never meet.
 * 2. The families are disjoint: the first token decides, and its row says what follows.
 * 3. A receipt names the execution (`sourceSeq`), not only the request: a request id may be used again
 *    once its decision is no longer kept.
 */
import { badRequest } from "../base/errors.ts";
import { type Form, type TokenName, type Values, form } from "./forms.ts";

type Triple = "owner" | "actor" | "uid";

/** What an instance tells while it works; never the ground for an effect (§13.4). */
export type EventTopic =
  | ({ readonly family: "ev" } & Values<"cluster" | "event">)
  | ({ readonly family: "goal" } & Values<Triple | "goalId" | "step">)
  | ({ readonly family: "cp" } & Values<"token" | "step">);

/** What has been decided, by its mediated writer. */
export type FactTopic =
  /** A decision: accepted or rejected. */
  | ({ readonly family: "dec" } & Values<Triple | "id">)
  /** Poison: its own family, apart from the ids of callers. */
  | ({ readonly family: "quar" } & Values<"sourceSeq">)
  /** A goal's terminal result, and its binding to one fingerprint (§13.4). */
  | ({ readonly family: "goal" } & Values<Triple | "goalId" | "fact">)
  /** The terminal result of one work item. */
  | ({ readonly family: "wrk" } & Values<"pool" | Triple | "id">)
  /** A request without an action has had its effect. */
  | ({ readonly family: "eff" } & Values<Triple | "id">)
  /** The one resume of a checkpoint. */
  | ({ readonly family: "cp" } & Values<"token">)
  | ({ readonly family: "receipt" } & Values<Triple | "id" | "sourceSeq">);

type Forms<T extends { readonly family: string }> = {
  readonly [F in T["family"]]: Form<Exclude<keyof Extract<T, { family: F }>, "family"> & TokenName>;
};

const EVENTS: Forms<EventTopic> = {
  ev: form("cluster", "event"),
  goal: form("owner", "actor", "uid", "goalId", "step"),
  cp: form("token", "step"),
};

const FACTS: Forms<FactTopic> = {
  dec: form("owner", "actor", "uid", "id"),
  quar: form("sourceSeq"),
  goal: form("owner", "actor", "uid", "goalId", "fact"),
  wrk: form("pool", "owner", "actor", "uid", "id"),
  eff: form("owner", "actor", "uid", "id"),
  cp: form("token"),
  receipt: form("owner", "actor", "uid", "id", "sourceSeq"),
};

export const eventTopic = (topic: EventTopic): string => write(EVENTS, topic);
export const factTopic = (topic: FactTopic): string => write(FACTS, topic);

/** `undefined` for a topic of no reserved family, or not in its form. */
export const parseEventTopic = (text: string): EventTopic | undefined => read<EventTopic>(EVENTS, text);
export const parseFactTopic = (text: string): FactTopic | undefined => read<FactTopic>(FACTS, text);

/** The row of a family takes and gives exactly that family's values; `Forms` has checked it. */
type AnyForm = { write: (values: never) => string[]; read: (tokens: readonly string[]) => object | undefined };

function write(forms: Readonly<Record<string, AnyForm>>, topic: { readonly family: string }): string {
  const shape = Object.hasOwn(forms, topic.family) ? forms[topic.family] : undefined;
  if (shape === undefined) throw badRequest("there is no such family of topics");
  return [topic.family, ...shape.write(topic as never)].join(".");
}

function read<T>(forms: Readonly<Record<string, AnyForm>>, text: string): T | undefined {
  const [family = "", ...tokens] = text.split(".");
  const values = Object.hasOwn(forms, family) ? forms[family]?.read(tokens) : undefined;
  return values === undefined ? undefined : ({ family, ...values } as T);
}
