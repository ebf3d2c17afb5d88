/**
 * The plane's two scanners (§13.13, supplement I): the connections that its claim is held by, and the only ones that
 * enumerate the ledger to decide something.
 *
 * Invariants
 * 1. Both are opened inert, before the claim: nothing is scanned until the row names them.
 * 2. The claim is read again before each scan and after it, and before whatever only the plane does. A row that has
 *    moved is somebody else's plane: what was scanned counts for nothing, and this plane is over.
 * 3. Neither is ever dialed again. The first fault of one ends both.
 */
import type { Connection } from "../../../shared/broker/connect.ts";
import { type Scanner, createScanner } from "../../../shared/broker/scanner.ts";
import { sealed } from "../../../shared/ledger/scan.ts";
import type { LedgerStore, Row, ScannedBucket } from "../../../shared/ledger/store.ts";
import { CotalError, ErrorCode, Outcome } from "../../../shared/protocol/base/errors.ts";
import { type ScannedStore, scannedStream, scannerConsumer } from "../../../shared/protocol/base/names.ts";
import type { ConnectionTuple, PlaneRow } from "../../../shared/protocol/ledger/actor-rows.ts";
import type { Holding } from "./claim.ts";
import { tupleOf } from "./liveness.ts";

export type ScannerConnection = {
  readonly connection: Connection;
  readonly userKey: string;
  /** Milliseconds until its credential should be a new one. */
  readonly freshMs: number;
};

export type ScannersParts = {
  readonly space: string;
  /** A connection that is not dialed again when it falls. */
  readonly open: (store: ScannedStore) => Promise<ScannerConnection>;
  readonly readPlane: () => Promise<Row<PlaneRow> | undefined>;
};

export type Scanners = Holding & {
  readonly scan: LedgerStore["scan"];
  /** Does the claim's row stand as it was taken? Read at the leader; if it does not, this plane is over. */
  readonly stands: () => Promise<boolean>;
};

export async function openScanners({ space, open, readPlane }: ScannersParts): Promise<Scanners> {
  const ledger = await open("ledger");
  const records = await open("records").catch(async (error: unknown) => {
    await ledger.connection.close();
    throw error;
  });
  const both = [ledger, records];
  const close = async (): Promise<void> => {
    await Promise.all(both.map(({ connection }) => connection.close()));
  };
  const tuples = { ledger: tuple(ledger), records: tuple(records) };
  if (tuples.ledger === undefined || tuples.records === undefined) {
    await close();
    throw new CotalError(ErrorCode.Unavailable, "a connection that was to hold the plane's claim is gone again");
  }

  let claimed: Row<PlaneRow> | undefined;
  let isOver = false;
  const { promise: ended, resolve: end } = Promise.withResolvers<unknown>();
  const fall = (cause: unknown): void => {
    isOver = true;
    end(cause);
  };
  const watch = async (store: ScannedStore, { connection }: ScannerConnection): Promise<void> =>
    fall(new Error(`the scanner of the ${store} has lost its connection`, { cause: await connection.closed }));
  void watch("ledger", ledger);
  void watch("records", records);

  const stands = async (): Promise<boolean> => {
    if (isOver) return false;
    const now = await readPlane();
    if (claimed !== undefined && now?.revision === claimed.revision) return !isOver;
    fall(new Error("the claim of the authority plane has moved"));
    return false;
  };

  const demandClaim = async (): Promise<void> => {
    if (await stands()) return;
    throw new CotalError(ErrorCode.Unavailable, "the authority plane that began this is over", {
      outcome: Outcome.Unknown,
      next: "ask again, once the authority plane is held anew: what was begun goes on under the same operation",
    });
  };

  const scannerOf = ({ connection }: ScannerConnection, store: ScannedStore): Scanner =>
    createScanner(connection, { stream: scannedStream(space, store), consumer: scannerConsumer(space, store) });
  const scanners: Record<ScannedBucket, Scanner> = {
    auth: scannerOf(ledger, "ledger"),
    records: scannerOf(records, "records"),
  };
  const scan = sealed(scanners, space);
  return {
    ledger: tuples.ledger,
    records: tuples.records,
    begin: (row) => {
      claimed = row;
    },
    ended,
    freshMs: Math.min(...both.map(({ freshMs }) => freshMs)),
    close: async () => {
      isOver = true;
      await close();
    },
    stands,
    scan: async (asked, pick) => {
      await demandClaim();
      const found = await scan(asked, pick);
      await demandClaim();
      return found;
    },
  };
}

const tuple = ({ connection, userKey }: ScannerConnection): ConnectionTuple | undefined =>
  tupleOf(connection.nc, userKey);
