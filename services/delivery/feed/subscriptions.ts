/**
 * What the clients of one server have subscribed to, of the space's channels: one look.
 *
 * A connection may hold very many subscriptions, and long ones, and the broker answers a question whole. So a page
 * asks first how many each connection has, and then for the subjects of as many connections as come to a bounded
 * number. Who a connection is never changes, and its proof is long: it is asked for once.
 *
 * Invariants
 * 1. No question asks for more than `most` subscriptions, nor for those of more than a page of connections. Of a
 *    connection with more none is read: they are counted as omitted.
 * 2. A connection that bears no principal's name, and a subject that is no lawful pattern, hear nothing here.
 */
import {
  type ListedConnection,
  type PageSizes,
  type Which,
  detailQuestion,
  followPages,
  nameOf,
} from "../../../shared/broker/connection-pages.ts";
import { parseDotForm } from "../../../shared/protocol/base/principals.ts";
import { type Gather, pageFrom } from "../../../shared/broker/gather.ts";
import type { Server } from "../../../shared/broker/servers.ts";

/** What one connection hears. */
export type Hearing = {
  /** The principal, in dot-form. */
  readonly id: string;
  readonly patterns: readonly string[];
  readonly omitted: number;
};

export type Listing =
  | {
      readonly kind: "listed";
      readonly hearings: readonly Hearing[];
      /** Connections that bear no principal's name. */
      readonly nameless: number;
    }
  | { readonly kind: "missing"; readonly why: string };

export type ListingParts = {
  readonly gather: Gather;
  /** Public key of the account in front. */
  readonly account: string;
  readonly heard: (subject: string) => string | undefined;
  readonly sizes?: PageSizes;
  /** Subscriptions of one question. */
  readonly most?: number;
};

/** Whose the connections of one server are, by their numbers, as earlier looks have learned it. */
export type Names = Map<number, string | undefined>;

const SIZES: PageSizes = { page: 256, overlap: 32 };

/** Of the longest channels that is an answer of 16 MiB; of usual ones 120 KiB. */
const MOST_SUBSCRIPTIONS = 4000;

export async function listSubscriptions(parts: ListingParts, server: Server, names: Names): Promise<Listing> {
  const { sizes = SIZES, most = MOST_SUBSCRIPTIONS } = parts;
  const follow = followPages(sizes);
  const seen = new Set<number>();
  const hearings: Hearing[] = [];
  let nameless = 0;
  for (let offset = 0; ;) {
    const counted = await ask(parts, server, { offset, limit: sizes.page });
    if (counted === undefined) return silent(server);
    const { fresh, next } = follow(counted);
    if (next.kind === "moving") return { kind: "missing", why: `connections of server ${server.name} came and went` };
    const first = offset + counted.data.connections.length - fresh.length;
    for (const run of runsOf(first, fresh, most)) {
      const read = await readRun(parts, server, run, names);
      if (read === undefined) return silent(server);
      for (const one of read) {
        seen.add(one.cid);
        const id = names.get(one.cid);
        if (id === undefined) nameless += 1;
        else hearings.push(hearingOf(parts, id, one, most));
      }
    }
    if (next.kind === "end") break;
    offset = next.offset;
  }
  for (const cid of names.keys()) if (!seen.has(cid)) names.delete(cid);
  return { kind: "listed", hearings, nameless };
}

const silent = ({ name }: Server): Listing => ({
  kind: "missing",
  why: `server ${name} did not list its connections`,
});

type Wanted = { readonly auth?: boolean; readonly subscriptions?: boolean };

const ask = ({ gather, account }: ListingParts, server: Server, which: Which, wanted?: Wanted) =>
  pageFrom(gather, account, server.id, detailQuestion(which, server.name, wanted));

/** Connections that stand behind one another and are asked about at once; `isLarge`: one, without its subjects. */
type Run = { readonly offset: number; readonly isLarge: boolean; readonly cids: readonly number[] };

function runsOf(first: number, counted: readonly ListedConnection[], most: number): Run[] {
  const runs: { offset: number; isLarge: boolean; cids: number[]; room: number }[] = [];
  for (const [at, { cid, subscriptions = 0 }] of counted.entries()) {
    const last = runs.at(-1);
    const isLarge = subscriptions > most;
    if (last !== undefined && !isLarge && !last.isLarge && last.room >= subscriptions) {
      last.cids.push(cid);
      last.room -= subscriptions;
    } else runs.push({ offset: first + at, isLarge, cids: [cid], room: most - subscriptions });
  }
  return runs;
}

/** `undefined` if the server fell silent. Who has ended meanwhile is not among them. */
async function readRun(
  parts: ListingParts,
  server: Server,
  { offset, isLarge, cids }: Run,
  names: Names,
): Promise<ListedConnection[] | undefined> {
  const subscriptions = !isLarge;
  const read = async (which: Which, wanted: readonly number[]): Promise<ListedConnection[] | undefined> => {
    const auth = wanted.some((cid) => !names.has(cid));
    const page = await ask(parts, server, which, { auth, subscriptions });
    const found = page?.data.connections.filter(({ cid }) => wanted.includes(cid));
    if (auth) for (const one of found ?? []) names.set(one.cid, principalOf(one));
    return found;
  };
  const together = await read({ offset, limit: cids.length }, cids);
  if (together === undefined) return undefined;
  const found = [...together];
  // Who is not where it was counted has ended, or has moved up because another has.
  const there = new Set(together.map(({ cid }) => cid));
  for (const cid of cids) {
    if (there.has(cid)) continue;
    const alone = await read({ cid }, [cid]);
    if (alone === undefined) return undefined;
    found.push(...alone);
  }
  return found;
}

function principalOf(one: ListedConnection): string | undefined {
  const name = nameOf(one);
  return name !== undefined && parseDotForm(name) !== undefined ? name : undefined;
}

/** One that has subscribed to much more since it was counted is read as far as was meant. */
function hearingOf({ heard }: ListingParts, id: string, one: ListedConnection, most: number): Hearing {
  const { subscriptions = 0, subscriptions_list: subjects } = one;
  if (subjects === undefined) return { id, patterns: [], omitted: subscriptions > most ? subscriptions : 0 };
  const patterns = subjects.flatMap((subject) => heard(subject) ?? []);
  return { id, patterns, omitted: 0 };
}
