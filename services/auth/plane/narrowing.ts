/**
 * What follows once a grant was narrowed (§8, `delivery.md` 5): stored copies that the read list covers no longer
 * are taken back, and connections that were let in with the wider lists are ended.
 *
 * Invariants
 * 1. It begins when the rows stand: nobody is let in with the wider lists any more, and no copy is authorised by them.
 * 2. `swept` and `ended` are the delivery service's proof. Without it they are `pending`, and happen later: the copies
 *    before that service writes any again, the connections at their next sign-in.
 * 3. Nothing here fails a narrowing: it is done, and its answer says how far it has come.
 */
import type { Principal } from "../../../shared/protocol/base/principals.ts";
import type { CopiesTaken, Narrowing } from "../../../shared/protocol/endpoint/auth-shapes.ts";
import type { PlaneParts } from "./parts.ts";

export type NarrowedList = {
  readonly principal: Principal;
  readonly uid: string;
  /** The store's sequence of its row; `undefined` where there is none, so that no copy was ever written by it. */
  readonly revision: number | undefined;
};

type Parts = Pick<PlaneParts, "isSwept" | "endConnections">;

export async function carryThrough(parts: Parts, list: NarrowedList): Promise<Narrowing> {
  const [copies, ended] = await Promise.all([takenBack(parts, list), parts.endConnections(list.principal)]);
  return { copies, connections: ended ? "ended" : "pending" };
}

export async function takenBack(
  { isSwept }: Pick<Parts, "isSwept">,
  { principal, uid, revision }: NarrowedList,
): Promise<CopiesTaken> {
  if (revision === undefined) return "none";
  return (await isSwept(principal, uid, revision)) ? "swept" : "pending";
}
