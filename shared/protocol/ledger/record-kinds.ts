/**
 * The kinds of records in the bucket `cotal_records_<s>` (supplement B): one frozen table. Grants, watches
 * and the mediators derive what they need from it; a kind without a row is nobody's to write or read.
 *
 * Invariants
 * 1. The first token of a key is its kind, and kinds with the same first token differ in their length: no
 *    key belongs to two.
 * 2. A split kind has two keys, `….spec` and `….status`, each with a writer and a revision of its own; the
 *    others are one key.
 * 3. A kind of somebody else's is a reverse-DNS name, written as a token like an endpoint's, so it always
 *    holds `_` and is never one of ours.
 *
 * Kinds of goals, checkpoints, leases, handles and runs get their rows with the work that first writes them.
 */
import { badRequest } from "../base/errors.ts";
import { type TokenName, type Values, form } from "../endpoint/forms.ts";

/** Which trusted party writes a key; no client writes any. */
export type RecordWriter = "provisioner" | "record-writer" | "ledger";
/** Who may read it through the mediator: every member of the space, or daemons alone. */
export type RecordReader = "member" | "daemon";

type Row = {
  /** The tokens between the kind and the half. */
  readonly tokens: readonly TokenName[];
  readonly reader: RecordReader;
  /** May a delete be read as absence? On the others a marker is corruption. */
  readonly deletable: boolean;
} & ({ readonly writer: RecordWriter } | { readonly spec: RecordWriter; readonly status: RecordWriter });

const kept = { deletable: false } as const;

export const RECORD_KINDS = Object.freeze({
  /** A serving instance's registration. */
  svc: {
    tokens: ["endpoint", "instanceId"],
    deletable: true,
    spec: "provisioner",
    status: "record-writer",
    reader: "member",
  },
  /** For browsing only: nothing is decided on it. */
  contracts: {
    tokens: ["endpoint"],
    deletable: true,
    spec: "provisioner",
    status: "provisioner",
    reader: "member",
  },
  /** The governance head: where registrations of one endpoint name come into an order. */
  govern: { tokens: ["endpoint"], ...kept, writer: "provisioner", reader: "daemon" },
  /** One immutable admission policy, under the digest of its value. */
  policy: { tokens: ["endpoint", "digest"], ...kept, writer: "provisioner", reader: "daemon" },
  lifecycle: { tokens: ["owner", "actor"], ...kept, writer: "ledger", reader: "daemon" },
  uid: { tokens: ["uid"], ...kept, writer: "ledger", reader: "daemon" },
  frontier: { tokens: ["uid"], ...kept, writer: "ledger", reader: "daemon" },
  /** On what an acceptance contends with the end of its target; the rest of the key is the caller. */
  oblig: {
    tokens: ["target", "endpoint", "owner", "actor", "uid", "id"],
    ...kept,
    writer: "ledger",
    reader: "daemon",
  },
} as const satisfies Readonly<Record<string, Row>>);

export type RecordKind = keyof typeof RECORD_KINDS;
export type RecordHalf = "spec" | "status";
type SplitKind = {
  [K in RecordKind]: (typeof RECORD_KINDS)[K] extends { readonly spec: RecordWriter } ? K : never;
}[RecordKind];
type RecordValues<K extends RecordKind> = Values<(typeof RECORD_KINDS)[K]["tokens"][number]>;

type MemberKind = {
  [K in RecordKind]: (typeof RECORD_KINDS)[K] extends { readonly reader: "member" } ? K : never;
}[RecordKind];

/** Kinds that every member may read through the mediator: those that the table says so of, or this does not type. */
export const MEMBER_KINDS = Object.freeze(["contracts", "svc"] as const satisfies readonly MemberKind[]);

function isRecordKind(text: string): text is RecordKind {
  return Object.hasOwn(RECORD_KINDS, text);
}

export function isSplit(kind: RecordKind): kind is SplitKind {
  return "spec" in RECORD_KINDS[kind];
}

/** The key of a record; of a split kind the half has to be said. */
export function recordKey<K extends RecordKind>(
  kind: K,
  values: RecordValues<K>,
  ...half: K extends SplitKind ? [RecordHalf] : []
): string {
  if (isSplit(kind) !== (half[0] === "spec" || half[0] === "status")) {
    throw badRequest(`${kind} ${isSplit(kind) ? "has a spec and a status; say which" : "is not split"}`);
  }
  return [kind, ...form<TokenName>(...RECORD_KINDS[kind].tokens).write(values as Values<TokenName>), ...half].join(".");
}

/** A filter for every key of a kind (and of one half of a split one). */
export function recordFilter<K extends RecordKind>(kind: K, ...half: K extends SplitKind ? [RecordHalf] : []): string {
  return [kind, ...RECORD_KINDS[kind].tokens.map(() => "*"), ...half].join(".");
}

export type RecordAddress = {
  readonly kind: RecordKind;
  readonly half?: RecordHalf;
  readonly values: Partial<Values<TokenName>>;
  readonly writer: RecordWriter;
};

/** Splits a key; `undefined` for one of no kind in the table, or not in its form. */
export function parseRecordKey(key: string): RecordAddress | undefined {
  const [kind = "", ...rest] = key.split(".");
  if (!isRecordKind(kind)) return undefined;
  const row: Row = RECORD_KINDS[kind];
  const half = rest.at(-1);
  if ("writer" in row) return addressed(kind, row, rest, row.writer);
  return half === "spec" || half === "status" ? addressed(kind, row, rest.slice(0, -1), row[half], half) : undefined;
}

function addressed(
  kind: RecordKind,
  { tokens }: Row,
  rest: readonly string[],
  writer: RecordWriter,
  half?: RecordHalf,
): RecordAddress | undefined {
  const values = form(...tokens).read(rest);
  return values === undefined ? undefined : { kind, values, writer, ...(half === undefined ? {} : { half }) };
}
