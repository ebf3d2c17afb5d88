/**
 * Requests to a role (§8.1): a holder takes one before he shows it, its sender reads what became of it and
 * cancels it while it waits.
 *
 * Invariants
 * 1. What is decided rests on one stream: its creation time is read before and after the request, and both
 *    reads agree (`look`).
 * 2. The row is the only judge. A lost compare-and-set, or a write that nobody answered, is settled by reading
 *    again, never by guessing.
 * 3. A removal is `pending` in the row before anything is deleted, and whoever finds it pending finishes it.
 * 4. Nobody learns of a request that another has sent.
 */
import { isCode, isUnknownOutcome } from "../../../shared/broker/errors.ts";
import { CotalError, ErrorCode, Outcome } from "../../../shared/protocol/base/errors.ts";
import {
  type AnycastStatus,
  type TakeCode,
  type TakeReply,
  type TakeRequest,
  anycastKey,
  epochToken,
  parseAnycastKey,
} from "../../../shared/protocol/chat/anycast.ts";
import type { AnycastArgs } from "../../../shared/protocol/endpoint/delivery-shapes.ts";
import {
  type AnycastRow,
  type CancelledRow,
  type StoredRequest,
  cancelledRow,
  decideTake,
  fenced,
  keptId,
  statusOf,
} from "./row.ts";
import type { AnycastStore, FoundRow } from "./store.ts";

export type RequestsParts = {
  readonly store: AnycastStore;
  /** Epoch milliseconds. */
  readonly now: () => number;
  /** The row at this key owes notices. */
  readonly onOwed: (key: string) => void;
  /** The last message where notices to this sender lie; 0 for none. */
  readonly lastNotice: (sender: string) => Promise<number>;
};

/** A take as the rail has read it: role and holder from the subject, the rest from a body that was checked. */
export type AskedTake = { readonly role: string; readonly holder: string; readonly body: TakeRequest };

export type Requests = {
  readonly take: (asked: AskedTake) => Promise<TakeReply>;
  /** `caller` is the dot-form of the authenticated sender. */
  readonly status: (caller: string, args: AnycastArgs) => Promise<AnycastStatus>;
  readonly cancel: (caller: string, args: AnycastArgs) => Promise<AnycastStatus>;
  /** Deletes what a pending row says, and records how it left (invariant 3). */
  readonly finish: (pending: PendingRow) => Promise<void>;
  /** The queue's creation time. */
  readonly created: () => Promise<string>;
};

export type PendingRow = FoundRow & { readonly row: CancelledRow };

/** How often a decision that was overtaken is made anew. */
const TRIES = 8;

const WHY: Readonly<Record<TakeCode, string>> = {
  cancelled: "its sender has cancelled this request",
  taken: "a take at this delivery count or a later one holds this request",
  gone: "nothing is stored at this sequence",
  mismatch: "what is stored at this sequence is not this request of this role, or the take is malformed",
  busy: "this take can't be decided now; ask again",
};

export const refusedTake = (code: TakeCode): TakeReply => ({ ok: false, code, error: WHY[code] });

/** One request and its row, of one stream. */
type Look = {
  readonly created: string;
  readonly key: string;
  readonly stored: StoredRequest | undefined;
  readonly found: FoundRow | undefined;
};

export function createRequests({ store, now, onOwed, lastNotice }: RequestsParts): Requests {
  const look = async (seq: number): Promise<Look> => {
    for (let tries = 0; tries < TRIES; tries += 1) {
      const created = await store.created();
      const stored = await store.request(seq);
      const key = anycastKey(created, seq);
      const [after, found] = await Promise.all([store.created(), store.row(key)]);
      if (after === created) return { created, key, stored, found };
    }
    throw moving();
  };

  /** Writes over what was looked at. False: it moved, or nobody knows; look again. */
  const put = async (key: string, row: AnycastRow, over: FoundRow | undefined): Promise<boolean> => {
    try {
      await (over === undefined ? store.create(key, row) : store.cas(key, row, over.revision));
      return true;
    } catch (error) {
      if (isCode(error, ErrorCode.Conflict) || isUnknownOutcome(error)) return false;
      throw error;
    }
  };

  const take = async ({ role, holder, body }: AskedTake): Promise<TakeReply> => {
    for (let tries = 0; tries < TRIES; tries += 1) {
      const { created, key, stored, found } = await look(body.seq);
      if (epochToken(body.epoch) !== epochToken(created)) return refusedTake("mismatch");
      if (stored === undefined) return refusedTake(found?.row?.state === "cancelled" ? "cancelled" : "gone");
      const { id } = stored;
      if (id === undefined || stored.role !== role || id !== body.id) return refusedTake("mismatch");
      const by = { holder: { id: holder, name: body.from.name }, count: body.count };
      const decided = decideTake(found?.row, { ...stored, id }, by, now());
      if (decided.kind === "refused") return refusedTake(decided.code);
      const written =
        decided.kind === "write" ? fenced(decided.row, found?.row, await lastNotice(stored.sender)) : undefined;
      if (written !== undefined && !(await put(key, written, found))) continue;
      const row = written ?? found?.row;
      if (row !== undefined && row.owed.length > 0) onOwed(key);
      return { ok: true };
    }
    return refusedTake("busy");
  };

  /** The caller's own row, of this stream or of one that is gone. */
  const ownRow = async (
    caller: string,
    { seq, id }: AnycastArgs,
    { key, found }: Look,
  ): Promise<FoundRow | undefined> => {
    const isOwn = ({ row }: FoundRow): boolean => row !== undefined && isHis(row, caller, id);
    if (found?.row !== undefined) return isOwn(found) ? found : undefined;
    return (await store.rowsAt(seq)).findLast((one) => one.key !== key && isOwn(one));
  };

  const told = async (caller: string, args: AnycastArgs, seen: Look): Promise<AnycastStatus> => {
    const { seq } = args;
    if (seen.found?.row === undefined && isHisRequest(seen.stored, caller, args.id)) {
      return { state: "waiting", seq, role: seen.stored.role };
    }
    const own = await ownRow(caller, args, seen);
    return own?.row === undefined ? { state: "unknown", seq } : statusOf(seq, own.row, own.key === seen.key);
  };

  const finish = async ({ key, revision, row }: PendingRow): Promise<void> => {
    const seq = parseAnycastKey(key)?.seq ?? 0;
    const isCurrent = key === anycastKey(await store.created(), seq);
    const removal = isCurrent && (await store.deleteRequest(seq)) ? "deleted" : "already-gone";
    await put(key, { ...row, removal }, { key, revision, row });
  };

  const cancel = async (caller: string, args: AnycastArgs): Promise<AnycastStatus> => {
    const { seq, id } = args;
    for (let tries = 0; tries < TRIES; tries += 1) {
      const seen = await look(seq);
      const row = seen.found?.row;
      if (row === undefined && isHisRequest(seen.stored, caller, id)) {
        await put(seen.key, cancelledRow(seen.stored, now()), seen.found);
        continue;
      }
      const own = await ownRow(caller, args, seen);
      if (own?.row?.state !== "cancelled" || own.row.removal !== "pending") return told(caller, args, seen);
      try {
        await finish({ ...own, row: own.row });
      } catch (error) {
        // The row says so, and whoever comes next finishes it.
        if (isUnknownOutcome(error)) return told(caller, args, seen);
        throw error;
      }
    }
    throw moving();
  };

  return {
    take,
    cancel,
    finish,
    status: async (caller, args) => told(caller, args, await look(args.seq)),
    created: store.created,
  };
}

function isHis({ sender, id }: Pick<AnycastRow, "sender" | "id">, caller: string, pinned: string | undefined): boolean {
  return sender === caller && (pinned === undefined || id === keptId(pinned));
}

function isHisRequest(
  stored: StoredRequest | undefined,
  caller: string,
  pinned: string | undefined,
): stored is StoredRequest {
  return stored?.sender === caller && (pinned === undefined || stored.id === pinned);
}

function moving(): CotalError {
  return new CotalError(ErrorCode.Unavailable, "this request changes faster than it can be read", {
    outcome: Outcome.Unknown,
    next: "ask again",
  });
}
