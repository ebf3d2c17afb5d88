/**
 * Join links (§10): `cotal://[token@]host[:port]/space[?channel=a,b]`, `cotals://` for TLS.
 *
 * Invariants
 * 1. A secret in the userinfo is taken out at once: the parsed link's `server` never holds it, and
 *    no error of this file repeats the part of a link where it stands, or may stand by mistake.
 * 2. One grammar decides, not a URL parser: a general one repairs what it reads (`\` becomes `/`,
 *    tabs vanish, `0x7f.1` becomes an address), and what it connects to is then not what was read.
 */
import { badRequest } from "../base/errors.ts";
import { channelPattern } from "../base/channels.ts";
import { spaceToken } from "../base/subjects.ts";

export const DEFAULT_PORT = 4222;

export type LinkSecret =
  | { readonly kind: "token"; readonly token: string }
  | { readonly kind: "password"; readonly user: string; readonly pass: string };

export type JoinLink = {
  /** `host:port`, never with credentials. */
  readonly server: string;
  readonly space: string;
  readonly tls: boolean;
  readonly channels: readonly string[];
  readonly secret?: LinkSecret;
};

/** Scheme, userinfo (to the last `@` before the path), host, port, path, query. Linear. */
const LINK =
  /^(?<scheme>cotals?):\/\/(?:(?<userinfo>[^/?#\s\\]*)@)?(?<host>\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9][A-Za-z0-9._-]{0,252})(?::(?<port>\d{1,5}))?\/(?<space>[^/?#\s\\@]+)(?:\?(?<query>[^#\s\\]*))?$/;

/** Parses a join link; throws `bad-request`. */
export function parseJoinLink(text: string): JoinLink {
  const groups = LINK.exec(text.trim())?.groups;
  const { scheme, userinfo, host, port, space, query } = groups ?? {};
  if (scheme === undefined || host === undefined || space === undefined) {
    throw badRequest(
      "this is no join link",
      "write cotal://host:4222/space?channel=general, and percent-encode @ : / ? # in a secret and # in a channel",
    );
  }
  if (!URL.canParse(`http://${host}`)) throw badRequest("the join link's host is neither a name nor an address");
  const secret = userinfo === undefined ? undefined : linkSecret(userinfo);
  return {
    server: `${host.toLowerCase()}:${portNumber(port)}`,
    space: spaceToken(decoded(space, "space")),
    tls: scheme === "cotals",
    channels: channelList(query ?? ""),
    ...(secret === undefined ? {} : { secret }),
  };
}

function portNumber(text: string | undefined): number {
  if (text === undefined) return DEFAULT_PORT;
  const port = Number(text);
  if (port < 1 || port > 65_535) throw badRequest("the join link's port is not between 1 and 65535");
  return port;
}

/** `channel` and `channels` are one thing; other parameters are ignored (§11). */
function channelList(query: string): string[] {
  const lists = query.split("&").flatMap((pair) => {
    const [name, ...value] = pair.split("=");
    return name === "channel" || name === "channels" ? [value.join("=")] : [];
  });
  const names = lists.flatMap((list) => decoded(list, "channel list").split(","));
  return [...new Set(names.filter((name) => name !== "").map(channelPattern))];
}

/** Without `:` a token, with it user and password, each decoded by itself. */
function linkSecret(userinfo: string): LinkSecret {
  const [first, ...rest] = userinfo.split(":");
  const user = decoded(first ?? "", "userinfo");
  if (user === "") throw badRequest("the join link has an empty secret", "leave out the @ or put the token before it");
  if (rest.length === 0) return { kind: "token", token: user };
  return { kind: "password", user, pass: decoded(rest.join(":"), "userinfo") };
}

function decoded(text: string, what: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw badRequest(`the join link's ${what} has a % that is no percent-encoding`, "write a plain % as %25");
  }
}

/** Spells a link without any secret, for a person to share. */
export function formatJoinLink(link: Pick<JoinLink, "server" | "space" | "tls" | "channels">): string {
  const query = link.channels.length === 0 ? "" : `?channel=${link.channels.join(",")}`;
  return `${link.tls ? "cotals" : "cotal"}://${link.server}/${link.space}${query}`;
}
