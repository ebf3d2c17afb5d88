/**
 * Which spaces have a public face and where it listens: the settings of it, checked against each other.
 *
 * Invariants
 * 1. There is none unless it is asked for, and none without TLS unless it is said that something in
 *    front of it ends TLS: proofs and bearers never cross an open line by default (§10).
 * 2. A listener belongs to one space, named or the only one (§10).
 */
import { isIP } from "node:net";
import { z } from "zod";
import { list } from "../../shared/daemon/settings.ts";
import { EVERY_SPACE } from "../../shared/daemon/spaces.ts";
import { badRequest } from "../../shared/protocol/base/errors.ts";
import { SPACE_TOKEN } from "../../shared/protocol/base/grammar.ts";
import { TLS_SETTING, type TlsFiles } from "./edge/face-tls.ts";

export const FACE_SETTING = {
  port: "COTAL_AUTH_FACE_PORT",
  face: "COTAL_AUTH_FACE",
  capability: "COTAL_AUTH_FACE_CAPABILITY",
  public: "COTAL_AUTH_PUBLIC",
} as const;

/** Where a public face listens, and what stands before it. */
export type PublicFace = {
  readonly host: string;
  readonly port: number;
  readonly tls?: TlsFiles;
  readonly proxies: readonly string[];
};

export type PublicEntry = { readonly space?: string; readonly host: string; readonly port: number };

/** `main=0.0.0.0:8443,lab=[::]:8444`, or one address alone. */
export const publicEntries: z.ZodType<readonly PublicEntry[]> = list.transform((texts, context) =>
  texts.map((text) => {
    const entry = entryOf(text);
    if (entry !== undefined) return entry;
    context.addIssue({ code: "custom", message: "expected space=address:port, with an IP address" });
    return z.NEVER;
  }),
);

function entryOf(text: string): PublicEntry | undefined {
  const [, space, v6, v4, digits] = /^(?:([^=]+)=)?(?:\[([0-9a-f:.]+)\]|([0-9.]+)):(\d{1,5})$/i.exec(text) ?? [];
  const host = v6 ?? v4 ?? "";
  const port = Number(digits);
  const lawful = isIP(host) === (v6 === undefined ? 4 : 6) && port <= 65_535;
  if (!lawful || (space !== undefined && !SPACE_TOKEN.test(space))) return undefined;
  return { host, port, ...(space === undefined ? {} : { space }) };
}

/** Addresses and networks, `10.0.0.0/8`. */
export const networks: z.ZodType<readonly string[]> = list.refine((texts) => texts.every(isNetwork), {
  error: "expected IP addresses or networks such as 10.0.0.0/8",
});

function isNetwork(text: string): boolean {
  const [address = "", bits, more] = text.split("/");
  const version = isIP(address);
  if (version === 0 || more !== undefined) return false;
  const most = version === 4 ? 32 : 128;
  // A network of all addresses would believe everybody.
  return bits === undefined || (/^\d{1,3}$/.test(bits) && Number(bits) >= 1 && Number(bits) <= most);
}

export type PublicSettings = {
  readonly spaces: readonly string[];
  readonly public: readonly PublicEntry[] | undefined;
  readonly publicTlsCert: string | undefined;
  readonly publicTlsKey: string | undefined;
  readonly publicPlain: boolean;
  readonly publicProxies: readonly string[] | undefined;
};

/** The public face of each space that has one. Throws `bad-request` for settings that don't fit each other. */
export function publicFaces(settings: PublicSettings): (space: string) => PublicFace | undefined {
  const { spaces, public: entries = [], publicProxies: proxies = [] } = settings;
  if (entries.length === 0) return () => undefined;
  const files = tlsOf(settings);
  const faces = listenersBySpace(FACE_SETTING.public, spaces, entries);
  return (space) => {
    const at = faces.get(space);
    if (at === undefined) return undefined;
    const ofSpace = (pattern: string): string => pattern.replaceAll("{space}", space);
    const tls = files === undefined ? {} : { tls: { cert: ofSpace(files.cert), key: ofSpace(files.key) } };
    return { ...at, ...tls, proxies };
  };
}

/** The listener of each space that has one. Throws `bad-request`, with the setting, for two of one or one of none. */
export function listenersBySpace(
  setting: string,
  spaces: readonly string[],
  entries: readonly PublicEntry[],
): ReadonlyMap<string, Pick<PublicFace, "host" | "port">> {
  const listeners = new Map<string, Pick<PublicFace, "host" | "port">>();
  const refused = (why: string, next: string): Error => unfit(why, next, setting);
  for (const { host, port, space = onlySpace(spaces, refused) } of entries) {
    if (!spaces.includes(space) && !spaces.includes(EVERY_SPACE)) {
      throw refused(`it names ${space}, which is not served here`, "name it in COTAL_SPACES too");
    }
    if (listeners.has(space)) throw refused(`it names ${space} twice`, "give each space one listener");
    listeners.set(space, { host, port });
  }
  return listeners;
}

function onlySpace(spaces: readonly string[], refused: (why: string, next: string) => Error): string {
  const [only] = spaces;
  if (only !== undefined && spaces.length === 1 && only !== EVERY_SPACE) return only;
  throw refused("several spaces may be served, and an address names none", "write it as space=address:port");
}

function tlsOf({ publicTlsCert: cert, publicTlsKey: key, publicPlain }: PublicSettings) {
  if (publicPlain && cert === undefined && key === undefined) return undefined;
  if (!publicPlain && cert !== undefined && key !== undefined) return { cert, key };
  throw unfit(
    publicPlain ? "it is to be plain, and a certificate is named" : "a public exchange needs a certificate and its key",
    `set ${TLS_SETTING.cert} and ${TLS_SETTING.key}; only behind a proxy that ends TLS, COTAL_AUTH_PUBLIC_PLAIN=true alone`,
  );
}

function unfit(why: string, next: string, setting: string = FACE_SETTING.public): Error {
  return badRequest(`${setting} can't be used: ${why}`, next);
}
