/**
 * What lies in a backup folder.
 *
 * ```
 * backup.json      the manifest, written last: a folder without one is torn
 * dev-person       the one person of a development issuer, where there is one (a name, and no key)
 * owner.secret     what the owner tokens of the space are derived from (no key, and no credential)
 * <part>.jsonl     one line a stored message or row, in the order of the store
 * consumers.jsonl  one line a durable: how far its holder had come
 * markers.jsonl    one line a member group: how far its copies had come
 * ```
 *
 * Invariants
 * 1. The manifest names every file with its digest, and its own digest is over all the rest of it.
 * 2. A line is what a publish needs to bring its message back: what the broker acts upon (`Nats-…`) is none of it.
 * 3. No credential, no key and no session is in a backup: authority does not come back (decisions H35, H47).
 */
import { z } from "zod";
import { canonicalDigest } from "../protocol/base/canonical.ts";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { type SpaceNames, bucketStream } from "../protocol/base/names.ts";
import { MarkerRow } from "../protocol/ledger/member-rows.ts";
import { AuthMode } from "../protocol/chat/space-settings.ts";

export const MANIFEST = "backup.json";
export const OWNER_SECRET = "owner.secret";
export const DEV_PERSON = "dev-person";
export const CONSUMERS = "consumers.jsonl";
export const MARKERS = "markers.jsonl";

/** Streams whose messages come back, at their own sequences. */
export const CONTENT = ["chat", "dm", "task", "dlv"] as const;
export type Content = (typeof CONTENT)[number];

/** Buckets that are read: some come back as they are, from others it is worked out who is to be enrolled. */
export const ROWS = ["members", "channels", "acl", "auth", "records"] as const;
export type Rows = (typeof ROWS)[number];

export type Part = Content | Rows;
export const partFile = (part: Part): string => `${part}.jsonl`;

/** The stream that a part is read from and written to. */
export function partStream(names: SpaceNames, part: Part): string {
  switch (part) {
    case "chat":
    case "dm":
    case "task":
    case "dlv":
      return names[part];
    default:
      return bucketStream(names.bucket[part]);
  }
}

const count = z.number().int().nonnegative().max(Number.MAX_SAFE_INTEGER);

/** A stored message. `headers`: each name with its values. */
export const Line = z.strictObject({
  seq: count,
  /** When the broker stored it, epoch milliseconds: for people, no broker takes it back. */
  at: count,
  subject: z.string().min(1),
  headers: z.array(z.tuple([z.string(), z.array(z.string())])).optional(),
  /** Base64. */
  data: z.string(),
});
export type Line = z.infer<typeof Line>;

/** A durable of a content stream. */
export const ConsumerLine = z.strictObject({
  part: z.enum(CONTENT),
  name: z.string(),
  /** The first sequence that it still owes its holder: everything below is acknowledged, or was never its own. */
  next: count,
  /** How many it had not given away or not been acknowledged. */
  owed: count,
});
export type ConsumerLine = z.infer<typeof ConsumerLine>;

/** The marker of a group, and where it stood in DLV: what lies behind it there is written anew by its writer. */
export const MarkerLine = z.strictObject({ group: count, seq: count, row: MarkerRow });
export type MarkerLine = z.infer<typeof MarkerLine>;

const File = z.strictObject({ name: z.string(), sha256: z.string(), bytes: count, lines: count });
export type File = z.infer<typeof File>;

/** How a content stream stood: what an operator may set of it, and its sequences. */
const Store = z.strictObject({
  maxAge: count,
  maxPerSubject: z.number().int(),
  lastSeq: count,
  messages: count,
});
export type Store = z.infer<typeof Store>;

const Body = z.strictObject({
  v: z.literal(1),
  space: z.string(),
  auth: AuthMode.exclude(["open"]),
  replicas: z.union([z.literal(1), z.literal(3)]),
  groups: z.number().int().min(1),
  /** Epoch milliseconds, at which reading began and ended. */
  began: count,
  ended: count,
  brokerVersion: z.string(),
  stores: z.record(z.enum(CONTENT), Store),
  files: z.array(File),
});
type Body = z.infer<typeof Body>;
export const Manifest = Body.extend({ digest: z.string() });
export type Manifest = z.infer<typeof Manifest>;

export function sealed(body: Body): Manifest {
  return { ...body, digest: canonicalDigest(body) };
}

/** Parses a manifest; throws `failed-precondition` for one that is damaged or was changed. */
export function parseManifest(text: string): Manifest {
  const parsed = Manifest.safeParse(orNothing(text));
  if (!parsed.success) throw damaged(`${MANIFEST} is not a manifest of this version`);
  const { digest, ...body } = parsed.data;
  if (canonicalDigest(body) !== digest) throw damaged(`${MANIFEST} does not have the digest that it names`);
  return parsed.data;
}

export function damaged(why: string): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, `this backup can't be used: ${why}`, {
    outcome: Outcome.NotExecuted,
    next: "nothing was restored; take another copy of the backup",
  });
}

function orNothing(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
