/**
 * How many member groups a space is to have (H25).
 *
 * Invariant: only the setting is written, over what was read. The delivery service carries it out (`regroup.ts`
 * there), and says whether it has: its markers are nothing that is read here.
 */
import type { z } from "zod";
import { changeJson, readJson } from "../../shared/broker/json-rows.ts";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import { SPACE_KEY } from "../../shared/protocol/chat/channel-config.ts";
import type { SpaceSettings } from "../../shared/protocol/chat/space-settings.ts";
import type { GroupsSetArgs } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import type { SpaceContext } from "./context.ts";
import { parseSettings } from "./setup.ts";

/** The settings as they are stored: those of the context are as old as this process. */
export async function settingsNow({ store, names }: SpaceContext): Promise<SpaceSettings> {
  return parseSettings((await readJson(store, names.bucket.channels, SPACE_KEY))?.value);
}

/** Says what was wanted before. The same number again changes nothing. */
export async function groupsSet(context: SpaceContext, { groups }: z.infer<typeof GroupsSetArgs>) {
  const { store, writer, names, settings } = context;
  if (settings.auth === "open") {
    throw new CotalError(ErrorCode.FailedPrecondition, "nobody writes copies in an open space: it has no groups", {
      outcome: Outcome.NotExecuted,
      next: "start a space that people sign in to",
    });
  }
  let before = groups;
  await changeJson(store, writer, { bucket: names.bucket.channels, key: SPACE_KEY }, (current) => {
    const now = parseSettings(current);
    before = now.groups;
    return before === groups ? undefined : { ...now, groups };
  });
  return { wanted: groups, before };
}
