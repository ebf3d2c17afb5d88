/**
 * Who of a principal is connected, and the end of that (§13.1: eviction by principal).
 *
 * Whoever asks has frozen what lets the principal in and revoked its credentials. A connect whose last look
 * at the ledger came just before is in, or never will be, once the broker's own time for a login is over
 * (decision H65).
 *
 * Invariants
 * 1. `gone` is said after one complete look that began `SETTLE_MS` after the question, and later than every
 *    KICK, and found nobody. Whatever failed before or is missing makes it `unknown`.
 * 2. Who comes back although it was ended holds a credential that still works: that is `live`, not a fault.
 * 3. That nobody survived is said of two complete looks, the first of them as late as in 1.
 * 4. No connection of this daemon itself is ended: its answer would be lost, and it would only come back.
 */
import { z } from "zod";
import { SETTLE_MS } from "../../../shared/broker/still-connected.ts";
import { sys } from "../../../shared/protocol/base/broker-subjects.ts";
import { badRequest } from "../../../shared/protocol/base/errors.ts";
import { type Principal, dotForm } from "../../../shared/protocol/base/principals.ts";
import type { PrincipalVerdict } from "../../../shared/protocol/endpoint/delivery-shapes.ts";
import { type Gather, readAnswer } from "../../../shared/broker/gather.ts";
import type { Look, Seen } from "./look.ts";

export type Kicked = { readonly principal: string; readonly found: number; readonly closed: number };

export type OracleParts = {
  readonly look: (names: readonly string[]) => Promise<Look>;
  /** Ends one connection; true if the broker says that it did. */
  readonly kick: (seen: Seen) => Promise<boolean>;
  readonly me: Principal;
  readonly onKicked?: (event: Kicked) => void;
  /** Monotonic milliseconds. */
  readonly now: () => number;
  readonly pause: (ms: number) => Promise<unknown>;
};

export type Oracle = {
  readonly evict: (principals: readonly Principal[]) => Promise<PrincipalVerdict[]>;
  readonly liveness: (principals: readonly Principal[]) => Promise<PrincipalVerdict[]>;
};

/** KICKs that are under way at once. */
const AT_ONCE = 32;

type Tally = { readonly seen: Set<string>; closed: number; survived?: number };

export function createOracle(parts: OracleParts): Oracle {
  const { look, now, pause } = parts;
  const until = async (at: number): Promise<void> => {
    const ms = at - now();
    if (ms > 0) await pause(ms);
  };
  return {
    evict: async (principals) => {
      const names = principals.map(dotForm);
      if (names.includes(dotForm(parts.me))) {
        throw badRequest("this daemon does not end its own connections", "stop its process instead");
      }
      const tallies = new Map(names.map((name): [string, Tally] => [name, { seen: new Set(), closed: 0 }]));
      let began = now();
      let last = await end(parts, await look(names), tallies);
      await until(began + SETTLE_MS);
      began = now();
      last = await look(names);
      if (last.found.size > 0) {
        // Somebody slipped in, or has a credential that works: the same once more tells which.
        await end(parts, last, tallies);
        await until(began + SETTLE_MS);
        const before = last;
        last = await look(names);
        if (before.gap === undefined && last.gap === undefined) countSurvivors(last, tallies);
        note(last, tallies);
      }
      for (const [principal, { seen, closed }] of tallies) {
        if (seen.size > 0) parts.onKicked?.({ principal, found: seen.size, closed });
      }
      return principals.map((p) => verdict(p, last, tallies.get(dotForm(p))));
    },
    liveness: async (principals) => {
      const names = principals.map(dotForm);
      const began = now();
      const first = await look(names);
      // Who is there need not be waited for, and who can't be seen is not seen later either.
      const rest = names.filter((name) => !first.found.has(name));
      if (rest.length === 0 || first.gap !== undefined) return principals.map((p) => verdict(p, first));
      await until(began + SETTLE_MS);
      const second = await look(rest);
      return principals.map((p) => verdict(p, first.found.has(dotForm(p)) ? first : second));
    },
  };
}

function verdict(p: Principal, { found, gap }: Look, tally?: Tally): PrincipalVerdict {
  const live = found.get(dotForm(p))?.length ?? 0;
  const counts = { owner: p.owner, actor: p.actor, found: tally?.seen.size ?? live, closed: tally?.closed ?? 0 };
  const survived = tally?.survived === undefined ? {} : { survived: tally.survived };
  if (live > 0) return { ...counts, state: "live", ...survived };
  return gap === undefined ? { ...counts, state: "gone" } : { ...counts, state: "unknown", why: gap };
}

/** Of two complete looks: whoever is in both was to end and has not. */
function countSurvivors({ found }: Look, tallies: ReadonlyMap<string, Tally>): void {
  for (const [name, tally] of tallies) {
    tally.survived = (found.get(name) ?? []).filter((one) => tally.seen.has(keyOf(one))).length;
  }
}

function note({ found }: Look, tallies: ReadonlyMap<string, Tally>): void {
  for (const [name, connections] of found) {
    for (const one of connections) tallies.get(name)?.seen.add(keyOf(one));
  }
}

const keyOf = ({ server, cid }: Seen): string => `${server} ${cid}`;

/** Ends whatever the look has found of those that are counted. */
async function end(parts: OracleParts, seen: Look, tallies: ReadonlyMap<string, Tally>): Promise<Look> {
  note(seen, tallies);
  const all = [...seen.found].flatMap(([name, connections]) =>
    connections.map((one) => ({ tally: tallies.get(name), one })),
  );
  const mine = all.filter(({ tally }) => tally !== undefined);
  for (let at = 0; at < mine.length; at += AT_ONCE) {
    await Promise.all(
      mine.slice(at, at + AT_ONCE).map(async ({ tally, one }) => {
        if ((await parts.kick(one)) && tally !== undefined) tally.closed += 1;
      }),
    );
  }
  return seen;
}

const KickAnswer = z.looseObject({ error: z.unknown().optional() });

/** A KICK without a reply subject does nothing (measured); one with an error ended nothing. */
export function kickOver(gather: Gather): OracleParts["kick"] {
  return async ({ server, cid }) => {
    const [answer] = await gather(sys.server(server, "KICK"), JSON.stringify({ cid }), () => true);
    const said = readAnswer(answer, (one) => KickAnswer.parse(one.json()));
    return said !== undefined && said.error === undefined;
  };
}
