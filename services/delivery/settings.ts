/** The settings of a space (H54), as this daemon reads them when it opens one. */
import type { NatsConnection } from "@nats-io/transport-node";
import { isCode } from "../../shared/broker/errors.ts";
import { readJson } from "../../shared/broker/json-rows.ts";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import { spaceNames } from "../../shared/protocol/base/names.ts";
import { SPACE_KEY } from "../../shared/protocol/chat/channel-config.ts";
import { SpaceSettings } from "../../shared/protocol/chat/space-settings.ts";

/** Throws `unavailable` while the provisioner has not set the space up. */
export async function readSettings(nc: NatsConnection, space: string): Promise<SpaceSettings> {
  const row = await unlessMissing(readJson(nc, spaceNames(space).bucket.channels, SPACE_KEY));
  if (row !== undefined) return SpaceSettings.parse(row.value);
  throw new CotalError(ErrorCode.Unavailable, "the space has no settings yet", {
    outcome: Outcome.NotExecuted,
    next: "start its provisioner: it sets the space up; this is tried again by itself",
  });
}

/** Before the space is set up its streams are not there either. */
async function unlessMissing<T>(read: Promise<T>): Promise<T | undefined> {
  try {
    return await read;
  } catch (error) {
    if (isCode(error, ErrorCode.NotFound)) return undefined;
    throw error;
  }
}
