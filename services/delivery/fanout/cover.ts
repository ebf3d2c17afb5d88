/**
 * Memberships of one group by what they cover: a map of channels, and one of families by their prefix.
 *
 * Invariants
 * 1. Finding who a post concerns costs a look-up for each segment of its channel, however many members there are, and
 *    reads the channel only as often as there are families with a prefix of that length: a sender chooses the segments.
 * 2. A lifecycle is found once for a channel, with every row of its own that covers it (§7: one copy).
 */
import { isFamily } from "../../../shared/protocol/base/channels.ts";
import type { Lifecycle, MemberRow } from "../../../shared/protocol/ledger/member-rows.ts";

/** A row as it stands in the store. */
export type Member = {
  readonly key: string;
  /** The store's sequence of the row. */
  readonly revision: number;
  readonly lifecycle: Lifecycle;
  readonly row: MemberRow;
};

/** Rows, and characters of their patterns: the memory that they cost. */
export type Held = { readonly rows: number; readonly characters: number };
const NOTHING: Held = { rows: 0, characters: 0 };

export type Cover = {
  readonly set: (member: Member) => void;
  readonly remove: (key: string) => void;
  readonly get: (key: string) => Member | undefined;
  readonly of: (lifecycle: string) => readonly Member[];
  /** What the rows of one lifecycle take, and what all of one owner's do. */
  readonly held: (lifecycle: Lifecycle) => { readonly own: Held; readonly owners: Held };
  /** Rows that cover a concrete channel, by lifecycle. */
  readonly covering: (channel: string) => ReadonlyMap<string, readonly Member[]>;
  readonly all: () => Iterable<Member>;
  /** Rows of changes that are under way. */
  readonly unfinished: () => readonly Member[];
  readonly size: () => number;
};

type Index = Map<string, Map<string, Member>>;

export function createCover(): Cover {
  const rows = new Map<string, Member>();
  const byLifecycle: Index = new Map();
  const exact: Index = new Map();
  const families: Index = new Map();
  /** How many families have a prefix of so many characters. */
  const lengths = new Map<number, number>();
  const open = new Map<string, Member>();
  const held = new Map<string, Held>();

  /** By lifecycle and by owner: a key of one is none of the other. */
  const count = ({ lifecycle, row: { pattern } }: Member, sign: 1 | -1): void => {
    for (const whose of [lifecycle.key, lifecycle.principal.owner]) {
      const { rows: before, characters } = held.get(whose) ?? NOTHING;
      const after = { rows: before + sign, characters: characters + sign * pattern.length };
      if (after.rows === 0) held.delete(whose);
      else held.set(whose, after);
    }
  };
  const placeOf = ({ row: { pattern } }: Member): readonly [Index, string] =>
    isFamily(pattern) ? [families, pattern.slice(0, -2)] : [exact, pattern];
  const put = (index: Index, at: string, member: Member): void => {
    const there = index.get(at);
    if (there !== undefined) return void there.set(member.key, member);
    index.set(at, new Map([[member.key, member]]));
    if (index === families) lengths.set(at.length, (lengths.get(at.length) ?? 0) + 1);
  };
  const take = (index: Index, at: string, key: string): void => {
    const there = index.get(at);
    there?.delete(key);
    if (there?.size !== 0) return;
    index.delete(at);
    if (index !== families) return;
    const others = (lengths.get(at.length) ?? 0) - 1;
    if (others > 0) lengths.set(at.length, others);
    else lengths.delete(at.length);
  };
  const remove = (key: string): void => {
    const member = rows.get(key);
    if (member === undefined) return;
    rows.delete(key);
    open.delete(key);
    count(member, -1);
    take(byLifecycle, member.lifecycle.key, key);
    take(...placeOf(member), key);
  };

  return {
    set: (member) => {
      remove(member.key);
      rows.set(member.key, member);
      count(member, 1);
      if (member.row.state === "joining" || member.row.state === "leaving") open.set(member.key, member);
      put(byLifecycle, member.lifecycle.key, member);
      put(...placeOf(member), member);
    },
    remove,
    get: (key) => rows.get(key),
    of: (lifecycle) => [...(byLifecycle.get(lifecycle)?.values() ?? [])],
    held: ({ key, principal: { owner } }) => ({
      own: held.get(key) ?? NOTHING,
      owners: held.get(owner) ?? NOTHING,
    }),
    covering: (channel) => {
      const found = new Map<string, Member[]>();
      const add = (there: Map<string, Member> | undefined): void => {
        for (const member of there?.values() ?? []) {
          const own = found.get(member.lifecycle.key);
          if (own === undefined) found.set(member.lifecycle.key, [member]);
          else own.push(member);
        }
      };
      add(exact.get(channel));
      for (let dot = channel.indexOf("."); dot !== -1; dot = channel.indexOf(".", dot + 1)) {
        if (lengths.has(dot)) add(families.get(channel.slice(0, dot)));
      }
      return found;
    },
    all: () => rows.values(),
    unfinished: () => [...open.values()],
    size: () => rows.size,
  };
}

/** May the row be owed a copy of what comes at this sequence? `joining` and what was left below are not. */
export function includes({ row }: Member, sequence: number): boolean {
  switch (row.state) {
    case "joining":
      return false;
    case "left":
      return sequence > row.join && sequence <= row.leave;
    case "joined":
    case "leaving":
      return sequence > row.join;
  }
}
