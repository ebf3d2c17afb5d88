/**
 * One look at every connection of a space: its accounts, on every server.
 *
 * Invariants
 * 1. A look without a gap is complete: the servers are proved to be all before it and the same after it,
 *    each has listed every connection of each account, each connection bears a name, and the connection of
 *    this daemon itself is among them.
 * 2. A gap ends no look: what can be seen is seen, and the gap is told.
 */
import { type PageSizes, followPages, nameOf, pageQuestion } from "../../../shared/broker/connection-pages.ts";
import { type Gather, pageFrom } from "../../../shared/broker/gather.ts";
import { type Server, serversOf } from "../../../shared/broker/servers.ts";

/** A connection of the broker; its number is never used again by that server. */
export type Seen = { readonly server: string; readonly cid: number };

export type Look = {
  /** Connections by the dot-form of who they are of; of whom none was asked for, none is kept. */
  readonly found: ReadonlyMap<string, readonly Seen[]>;
  /** What the look does not cover; `undefined` for a complete one. */
  readonly gap: string | undefined;
};

export type LookParts = {
  readonly gather: Gather;
  /** Public keys of the accounts; the first is where this daemon itself is connected. */
  readonly accounts: readonly string[];
  /** This daemon's own connection, as the broker counts it. */
  readonly self: () => Seen | undefined;
  readonly sizes?: PageSizes;
};

/** Smaller pages than for a list without JWTs: a page of them is one message. */
const SIZES: PageSizes = { page: 512, overlap: 64 };
const MOVING = "connections came and went while they were counted";
const CHURN_TRIES = 3;

export async function look(parts: LookParts, wanted: ReadonlySet<string>): Promise<Look> {
  for (let tries = 1; ; tries += 1) {
    const seen = await lookOnce(parts, wanted);
    // It passes by itself, so it is worth another try; nothing else is.
    if (seen.gap !== MOVING || tries === CHURN_TRIES) return seen;
  }
}

async function lookOnce(parts: LookParts, wanted: ReadonlySet<string>): Promise<Look> {
  const { gather, accounts } = parts;
  const self = parts.self();
  const before = await serversOf(gather);
  const gaps: (string | undefined)[] = [before.gap];
  const found = new Map<string, Seen[]>();
  let isSelfSeen = false;
  for (const [at, account] of accounts.entries()) {
    for (const server of before.servers) {
      const gap = await list(parts, account, server, (name, cid) => {
        if (name !== undefined && wanted.has(name)) {
          const of = found.get(name) ?? [];
          of.push({ server: server.id, cid });
          found.set(name, of);
        }
        if (at === 0 && self?.server === server.id && self.cid === cid) isSelfSeen = true;
      });
      gaps.push(gap);
    }
  }
  const after = await serversOf(gather);
  gaps.push(isSameSet(before.servers, after.servers) ? after.gap : "a server came or went during the count");
  if (!isSelfSeen) gaps.push("the broker does not list this daemon's own connection");
  return { found, gap: gaps.find((gap) => gap !== undefined) };
}

/** Reads one account of one server to its end; what is missing, if anything is. */
async function list(
  { gather, sizes = SIZES }: LookParts,
  account: string,
  server: Server,
  each: (name: string | undefined, cid: number) => void,
): Promise<string | undefined> {
  const follow = followPages(sizes);
  let isNameless = false;
  for (let offset = 0; ;) {
    const question = pageQuestion(offset, sizes.page, server.name);
    const answer = await pageFrom(gather, account, server.id, question);
    if (answer === undefined) return `server ${server.name} did not list its connections`;
    const { fresh, next } = follow(answer);
    for (const one of fresh) {
      const name = nameOf(one);
      isNameless ||= name === undefined;
      each(name, one.cid);
    }
    if (next.kind === "moving") return MOVING;
    if (next.kind === "end") break;
    offset = next.offset;
  }
  return isNameless ? `a connection on server ${server.name} bears no name: nobody can say whose it is` : undefined;
}

function isSameSet(some: readonly Server[], others: readonly Server[]): boolean {
  const ids = new Set(others.map(({ id }) => id));
  return some.length === ids.size && some.every(({ id }) => ids.has(id));
}

/**
 * Looks for many at once: whoever asks while one is under way waits for the next, and all who wait share it.
 * So each look that somebody is given began after he asked.
 */
export function shareLooks(
  run: (wanted: ReadonlySet<string>) => Promise<Look>,
): (names: readonly string[]) => Promise<Look> {
  let last: Promise<unknown> = Promise.resolve();
  let waiting: { readonly wanted: Set<string>; readonly look: Promise<Look> } | undefined;
  return (names) => {
    if (waiting === undefined) {
      const wanted = new Set<string>();
      const mine = last.then(() => {
        waiting = undefined;
        return run(wanted);
      });
      waiting = { wanted, look: mine };
      last = mine.catch(() => undefined);
    }
    for (const name of names) waiting.wanted.add(name);
    return waiting.look.then((seen) => ofThese(seen, names));
  };
}

/** What others have asked for in the same look is theirs. */
function ofThese({ found, gap }: Look, names: readonly string[]): Look {
  return { found: new Map([...found].filter(([name]) => names.includes(name))), gap };
}
