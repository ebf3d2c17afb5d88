/**
 * Families of the ledger, enumerated to decide something (§13.1, supplement E): by the authority plane's sealed scanners,
 * or by a walk of leader reads where a space has no plane.
 *
 * Invariants
 * 1. A scanner may be served by a replica, so a scan counts only if it has met the row that its asker wrote last, at that
 *    revision or a later one. A replica that is behind is asked again, a few times, and then the scan fails.
 * 2. Markers and rows that don't parse are handed on as what they are: whoever asked says what they mean.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { NatsConnection } from "@nats-io/transport-node";
import { parseJson } from "../protocol/base/json.ts";
import { type StoredEntry, isMarker, leaderNext } from "../broker/reads.ts";
import type { ScannedEntry, Scanner } from "../broker/scanner.ts";
import { kvKey, kvKeyOf } from "../protocol/base/broker-subjects.ts";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { Header } from "../protocol/base/headers.ts";
import { bucketStream, spaceNames } from "../protocol/base/names.ts";
import type { FoundRow, LedgerStore, Scan, ScannedBucket } from "./store.ts";

const LOOKS = 10;
const PAUSE_MS = 100;

/** Scans of one space over the scanner of each bucket. */
export function sealed(scanners: Readonly<Record<ScannedBucket, Scanner>>, space: string): LedgerStore["scan"] {
  return async (asked, pick) => {
    for (let look = 1; look <= LOOKS; look += 1) {
      const found = await once(scanners[asked.bucket], spaceNames(space).bucket[asked.bucket], asked, pick);
      if (found !== undefined) return found;
      await sleep(PAUSE_MS);
    }
    throw new CotalError(ErrorCode.Unavailable, `the replica that scans ${asked.family} is behind the leader`, {
      outcome: Outcome.NotExecuted,
      next: "ask again when every server of the cluster is back",
    });
  };
}

/** `undefined` if the scan has not met the row that it must come after. */
async function once<T>(
  scanner: Scanner,
  bucket: string,
  { family, after }: Scan,
  pick: (key: string, row: FoundRow) => T | undefined,
): Promise<readonly T[] | undefined> {
  const found: T[] = [];
  let isAfter = false;
  await scanner.scan([kvKey(bucket, family), kvKey(bucket, after.key)], (entry) => {
    const key = kvKeyOf(bucket, entry.subject) ?? "";
    if (key === after.key) {
      isAfter ||= entry.seq >= after.revision;
      return;
    }
    const one = pick(key, rawRow(entry));
    if (one !== undefined) found.push(one);
  });
  return isAfter ? found : undefined;
}

/** One leader read for each row: for a space whose ledger is its provisioner's, and small. */
export function walked(nc: NatsConnection, space: string): LedgerStore["scan"] {
  return async (asked, pick) => {
    const bucket = spaceNames(space).bucket[asked.bucket];
    const found = [];
    for (let seq = 1; ;) {
      const entry = await leaderNext(nc, bucketStream(bucket), kvKey(bucket, asked.family), seq);
      if (entry === undefined) return found;
      const one = pick(kvKeyOf(bucket, entry.subject) ?? "", rawRow(entry));
      if (one !== undefined) found.push(one);
      seq = entry.seq + 1;
    }
  };
}

/** A row as it is stored. */
export function rawRow({
  seq,
  headers,
  data,
}: Pick<StoredEntry, "seq" | "data"> & Pick<ScannedEntry, "headers">): FoundRow {
  if (headers === "unreadable") return { kind: "value", revision: seq, value: undefined };
  if (isMarker(headers)) return { kind: "marker", revision: seq };
  // The bucket lets a marker leave by itself; a row that would has been given its life by nobody of us (H24).
  const isMortal = headers?.has(Header.Ttl) === true;
  return { kind: "value", revision: seq, value: isMortal ? undefined : parseJson(data) };
}
