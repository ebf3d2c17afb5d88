/**
 * Setting a space up: its streams and buckets, its settings, its defaults.
 *
 * Every step is a create that finds what is there and leaves it (§8: setting up an existing space
 * changes no limit). What differs from the contract is told as drift, never mended in silence.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { ensureStreams } from "../../shared/broker/ensure.ts";
import { spaceStreams } from "../../shared/broker/resources.ts";
import type { Writer } from "../../shared/broker/write.ts";
import { canonicalDigest } from "../../shared/protocol/base/canonical.ts";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import { spaceNames } from "../../shared/protocol/base/names.ts";
import { OPEN_OWNER, dotForm, parseDotForm } from "../../shared/protocol/base/principals.ts";
import { DEFAULTS_KEY, SPACE_KEY } from "../../shared/protocol/chat/channel-config.ts";
import { type AuthMode, DEFAULT_LIMITS, SpaceSettings } from "../../shared/protocol/chat/space-settings.ts";
import { changeJson, readJson } from "../../shared/broker/json-rows.ts";

export type SetupOptions = {
  readonly space: string;
  readonly auth: AuthMode;
  readonly replicas: 1 | 3;
  /** The provisioner's own principal, dot-form. */
  readonly principal: string;
};

/** Makes what is missing. Safe to run by several processes at once. */
export async function setUpStreams(nc: NatsConnection, space: string, replicas: 1 | 3) {
  return ensureStreams(nc, spaceStreams(space, { replicas }));
}

/** The settings row and the channel defaults, made once; later only a new daemon's name is added. */
export async function setUpSettings(nc: NatsConnection, writer: Writer, options: SetupOptions): Promise<SpaceSettings> {
  const { channels } = spaceNames(options.space).bucket;
  await changeJson(nc, writer, { bucket: channels, key: DEFAULTS_KEY }, (current) =>
    current === undefined ? { deliveryClass: "durable" } : undefined,
  );
  await changeJson(nc, writer, { bucket: channels, key: SPACE_KEY }, (current) => nextSettings(current, options));
  const row = await readJson(nc, channels, SPACE_KEY);
  return parseSettings(row?.value);
}

function nextSettings(current: unknown, options: SetupOptions): SpaceSettings | undefined {
  const { space, auth, replicas, principal } = options;
  const fresh: SpaceSettings = {
    v: 1,
    space,
    auth,
    reads: "mediated",
    replicas,
    groups: 1,
    daemons: daemonsOf(principal),
    limits: DEFAULT_LIMITS,
  };
  if (current === undefined) return fresh;
  const settings = parseSettings(current);
  if (settings.auth !== auth) {
    throw new CotalError(ErrorCode.FailedPrecondition, `the space is ${settings.auth}, and was started as ${auth}`, {
      outcome: Outcome.NotExecuted,
      next: `start it as ${settings.auth}, or use another space or state folder`,
    });
  }
  const daemons = { ...settings.daemons, ...daemonsOf(principal) };
  if (auth === "open" || canonicalDigest(daemons) === canonicalDigest(settings.daemons)) return undefined;
  return { ...settings, daemons };
}

/** Whom a client believes to be which daemon (decisions H6, H54). All live under the owner that is the space. */
function daemonsOf(principal: string): SpaceSettings["daemons"] {
  const me = parseDotForm(principal);
  const delivery =
    me === undefined || me.owner === OPEN_OWNER ? {} : { delivery: dotForm({ ...me, actor: "delivery" }) };
  return { provisioner: principal, ...delivery };
}

/** Throws `failed-precondition` for a row of another version. */
export function parseSettings(value: unknown): SpaceSettings {
  const parsed = SpaceSettings.safeParse(value);
  if (parsed.success) return parsed.data;
  const where = parsed.error.issues[0]?.path.join(".") ?? "";
  throw new CotalError(
    ErrorCode.FailedPrecondition,
    `the settings row of the space does not parse at ${where || "its root"}`,
    {
      outcome: Outcome.NotExecuted,
      next: "a newer version may have written it: run that version, or restore the row",
    },
  );
}
