/**
 * Which space a command means, and where it is: from its options, a join link, or the plane that
 * runs on the state folder.
 *
 * Invariant: a link's secret is kept apart from the address and printed nowhere (§10).
 */
import { resolve } from "node:path";
import { type LinkSecret, parseJoinLink } from "../shared/protocol/chat/join-link.ts";
import type { AuthMode } from "../shared/protocol/chat/space-settings.ts";
import { spaceToken } from "../shared/protocol/base/subjects.ts";
import { livePlane } from "../launcher/plane-record.ts";
import { DEFAULT_PORT, LOOPBACK, defaultState, readRemembered } from "../launcher/state-folder.ts";
import { UsageError, argument } from "./exit.ts";

/** Options that every command takes. */
export type CommonOptions = {
  readonly state?: string;
  readonly space?: string;
  readonly server?: string;
  readonly creds?: string;
  readonly as?: string;
  readonly json?: boolean;
};

export type Target = {
  readonly state: string;
  readonly space: string;
  /** `nats://host:port` or `tls://host:port`, without credentials. */
  readonly server: string;
  /** The server was named, with `--server`, `COTAL_SERVER` or a link, and not found through the state folder. */
  readonly isNamed: boolean;
  /** How people get in, as far as this state folder knows; `undefined` for somebody else's server. */
  readonly auth?: AuthMode;
  readonly secret?: LinkSecret;
  /** Channels that a join link names. */
  readonly channels: readonly string[];
};

export const DEFAULT_SPACE = "main";

export function stateOf(options: CommonOptions): string {
  return options.state === undefined ? defaultState(process.env) : resolve(options.state);
}

export function spaceOf(options: CommonOptions): string {
  return argument(() => spaceToken(options.space ?? DEFAULT_SPACE));
}

export function resolveTarget(options: CommonOptions): Target {
  const state = stateOf(options);
  const given = options.server ?? serverOf(process.env);
  if (given === undefined) {
    const auth = readRemembered(state)?.auth;
    return {
      state,
      space: spaceOf(options),
      server: localServer(state),
      isNamed: false,
      channels: [],
      ...(auth === undefined ? {} : { auth }),
    };
  }
  return /^cotals?:/i.test(given) ? fromLink(state, options, given) : fromUrl(state, options, given);
}

/** `COTAL_SERVER`; empty is unset. */
function serverOf({ COTAL_SERVER: named = "" }: Readonly<Record<string, string | undefined>>): string | undefined {
  return named === "" ? undefined : named;
}

/** Where the plane of this state listens, or would. */
function localServer(state: string): string {
  const port = readRemembered(state)?.port ?? DEFAULT_PORT;
  return livePlane(state)?.server ?? `nats://${LOOPBACK}:${port}`;
}

function fromLink(state: string, options: CommonOptions, text: string): Target {
  const link = argument(() => parseJoinLink(text));
  if (options.space !== undefined && spaceOf(options) !== link.space) {
    throw new UsageError(`the join link is for space ${link.space}, and --space says ${options.space}`, {
      next: "leave --space out",
    });
  }
  const server = `${link.tls ? "tls" : "nats"}://${link.server}`;
  return {
    state,
    space: link.space,
    server,
    isNamed: true,
    channels: link.channels,
    ...ownAuth(state, server),
    ...(link.secret === undefined ? {} : { secret: link.secret }),
  };
}

function fromUrl(state: string, options: CommonOptions, text: string): Target {
  const server = text.includes("://") ? text : `nats://${text}`;
  if (!URL.canParse(server) || !/^(?:nats|tls):$/.test(new URL(server).protocol)) {
    throw new UsageError("--server is neither an address nor a join link", {
      next: "write it like nats://host:4222, host:4222 or cotal://host:4222/space",
    });
  }
  const url = new URL(server);
  if (url.username !== "" || url.password !== "") {
    throw new UsageError("--server holds a secret, which everybody on this machine can see", {
      next: "use --creds FILE",
    });
  }
  return { state, space: spaceOf(options), server, isNamed: true, channels: [], ...ownAuth(state, server) };
}

/** The state's own mode, if this is the state's own server. */
function ownAuth(state: string, server: string): { readonly auth?: AuthMode } {
  const remembered = readRemembered(state);
  if (remembered === undefined) return {};
  const own = [`nats://${LOOPBACK}:${remembered.port}`, `nats://localhost:${remembered.port}`, localServer(state)];
  return own.includes(server) ? { auth: remembered.auth } : {};
}
