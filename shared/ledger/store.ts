/**
 * What the ledger needs of the broker: leader reads and two kinds of write, nothing else.
 *
 * Invariant: every write is a create or a compare-and-set pinned to the revision that was read; a
 * read alone never decides anything (§13.9).
 */
import type { z } from "zod";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { isPrunable } from "../protocol/ledger/families.ts";

/** One row as a leader read found it. */
export type RawRow =
  | { readonly kind: "absent" }
  | { readonly kind: "marker"; readonly revision: number }
  | { readonly kind: "value"; readonly revision: number; readonly value: unknown };

/** The buckets that the ledger writes (§13.1, §13.15, supplement B, decision H34). */
export type LedgerBucket = "auth" | "records" | "acl" | "issued" | "accepted";
/** Those it reads: sessions are written by who serves them (§10). */
export type ReadBucket = LedgerBucket | "sessions";

/** The buckets whose families are enumerated to decide something. */
export type ScannedBucket = "auth" | "records";

export type Scan = {
  readonly bucket: ScannedBucket;
  /** One family, as a key pattern: `prefix.*`. */
  readonly family: string;
  /**
   * A row of the same bucket that was written after every row of the family that must be met: the freeze of the gate,
   * the head's move. Replicas take writes in one order, so whoever shows this one at this revision shows them all.
   */
  readonly after: { readonly key: string; readonly revision: number };
};

/** A row that a scan met; markers are among them. */
export type FoundRow = Exclude<RawRow, { readonly kind: "absent" }>;

export type LedgerStore = {
  readonly read: (bucket: ReadBucket, key: string) => Promise<RawRow>;
  /** Throws `conflict` if the key has, or ever had, a value. */
  readonly create: (bucket: LedgerBucket, key: string, value: object) => Promise<number>;
  /** Throws `conflict` if the row moved. */
  readonly cas: (bucket: LedgerBucket, key: string, value: object, revision: number) => Promise<number>;
  /**
   * What `pick` makes of each row of one family, whole, or it throws. `pick` may be asked twice for one row, and must
   * change nothing.
   */
  readonly scan: <T>(asked: Scan, pick: (key: string, row: FoundRow) => T | undefined) => Promise<readonly T[]>;
  /** Keys that have a value, of one family (`prefix.*`), read from the leader to the end. */
  readonly keys: (bucket: LedgerBucket, filter: string) => Promise<readonly string[]>;
};

/** Rows of one family that are read or written at once. */
export const ROWS_AT_ONCE = 256;

export type Row<T> = { readonly value: T; readonly revision: number };

/** Reads a row. A marker where rows are never deleted is corruption and refuses loudly, by its key (supplement B). */
export async function readRow<Schema extends z.ZodType>(
  store: Pick<LedgerStore, "read">,
  bucket: ReadBucket,
  key: string,
  schema: Schema,
): Promise<Row<z.output<Schema>> | undefined> {
  return rowOf(bucket, key, await store.read(bucket, key), schema);
}

/** The row that was found there, as its family's. Throws as `readRow` does. */
export function rowOf<Schema extends z.ZodType>(
  bucket: ReadBucket,
  key: string,
  raw: RawRow,
  schema: Schema,
): Row<z.output<Schema>> | undefined {
  if (raw.kind === "absent") return undefined;
  if (raw.kind === "marker") {
    if (isPrunable(bucket, key)) return undefined;
    throw corrupt(key, "was deleted, and rows of this kind never are");
  }
  const parsed = schema.safeParse(raw.value);
  if (!parsed.success) throw corrupt(key, parsed.error.issues[0]?.message ?? "does not parse");
  return { value: parsed.data, revision: raw.revision };
}

function corrupt(key: string, why: string): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, `the ledger row ${key} ${why}`, {
    outcome: Outcome.NotExecuted,
    next: "nothing is decided on it; compare it with a backup, or restore the space",
  });
}

/** Creates a row, or adopts the one that is there. Says which. */
export async function createOrRead<Schema extends z.ZodType>(
  store: LedgerStore,
  bucket: LedgerBucket,
  key: string,
  schema: Schema,
  value: z.output<Schema> & object,
): Promise<Row<z.output<Schema>> & { readonly created: boolean }> {
  try {
    return { value, revision: await store.create(bucket, key, value), created: true };
  } catch (error) {
    if (!(error instanceof CotalError) || error.code !== ErrorCode.Conflict) throw error;
    const found = await readRow(store, bucket, key, schema);
    if (found === undefined) throw error;
    return { ...found, created: false };
  }
}
