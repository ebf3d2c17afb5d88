/**
 * The broker's list of connections (CONNZ), read page after page.
 *
 * Connections come and go between two pages, and an offset counts what is there now. So each page reaches
 * back into the page before: if nothing of that is left, more have ended than the overlap bears, and what
 * lies between is unseen.
 *
 * Invariant: `end` is said only of a list whose every connection was handed over.
 */
import type { Msg } from "@nats-io/transport-node";
import { z } from "zod";
import { jsonObject } from "../trust/nats-jwt.ts";

export type PageSizes = {
  readonly page: number;
  /** By so many a page reaches back: so many connections may end between two pages. */
  readonly overlap: number;
};

const Answer = z.looseObject({
  server: z.looseObject({ id: z.string(), name: z.string().optional() }),
  data: z.looseObject({
    total: z.number(),
    connections: z.array(
      z.looseObject({
        cid: z.number(),
        authorized_user: z.string().optional(),
        jwt: z.string().optional(),
        /** How many there are, and, where they were asked for, their subjects. */
        subscriptions: z.number().optional(),
        subscriptions_list: z.array(z.string()).optional(),
      }),
    ),
  }),
});
export type ConnectionsPage = z.infer<typeof Answer>;
export type ListedConnection = ConnectionsPage["data"]["connections"][number];

/** Throws for an answer that is none. */
export const pageOf = (message: Pick<Msg, "json">): ConnectionsPage => Answer.parse(message.json());

/** What is asked for: with who they are, oldest first; of one server, if one is named. */
export function pageQuestion(offset: number, limit: number, server?: string): string {
  const whole = { auth: true, sort: "cid", offset, limit };
  return JSON.stringify(server === undefined ? whole : { ...whole, ...only(server) });
}

/** One connection, or several from an offset on, oldest first. */
export type Which = { readonly cid: number } | { readonly offset: number; readonly limit: number };

/**
 * Of one server, what is wanted of them beside how many subscriptions each has: who they are (a JWT for each), and
 * the subjects of all their subscriptions.
 */
export const detailQuestion = (
  which: Which,
  server: string,
  wanted: { readonly auth?: boolean; readonly subscriptions?: boolean } = {},
): string => JSON.stringify({ sort: "cid", ...which, ...wanted, ...only(server) });

const only = (server: string) => ({ server_name: server, exact_match: true });

/** The principal that a JWT names: of a callout's the broker shows the name alone, of any other the JWT. */
export function nameOf({ authorized_user: user, jwt }: ListedConnection): string | undefined {
  if (jwt === undefined) return user;
  const name = jsonObject(jwt.split(".", 2)[1] ?? "")?.["name"];
  return typeof name === "string" ? name : undefined;
}

export type PageStep = {
  /** Connections of this page that no page before had. */
  readonly fresh: readonly ListedConnection[];
  /** `more` asks for the page at `offset`; `moving`: too many ended meanwhile, and nothing is proved. */
  readonly next:
    | { readonly kind: "end" }
    | { readonly kind: "moving" }
    | { readonly kind: "more"; readonly offset: number };
};

const MOST_PAGES = 1000;

/** Follows one list, of one server. Give it the page at offset 0, then each that it asks for. */
export function followPages({ overlap }: Pick<PageSizes, "overlap">): (page: ConnectionsPage) => PageStep {
  let last = 0;
  let offset = 0;
  let pages = 0;
  return ({ data: { connections, total } }) => {
    pages += 1;
    const first = connections[0]?.cid;
    if (last > 0 && (first === undefined || first > last)) return { fresh: [], next: { kind: "moving" } };
    const before = last;
    const fresh = connections.filter(({ cid }) => cid > before);
    last = Math.max(last, ...fresh.map(({ cid }) => cid));
    const end = offset + connections.length;
    if (end >= total) return { fresh, next: { kind: "end" } };
    if (fresh.length === 0 || pages >= MOST_PAGES) return { fresh, next: { kind: "moving" } };
    offset = Math.max(0, end - overlap);
    return { fresh, next: { kind: "more", offset } };
  };
}
