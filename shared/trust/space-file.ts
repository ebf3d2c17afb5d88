/** `space.json`: the accounts that the provisioner of a space signs for, and how people get in. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { AuthMode } from "../protocol/chat/space-settings.ts";
import { ProvisionerFile, readKept, trustPaths } from "./folder.ts";

export const SpaceFile = z.strictObject({
  v: z.literal(1),
  /** Public identity keys of the two accounts. */
  front: z.string(),
  store: z.string(),
  auth: AuthMode.exclude(["open"]),
});
export type SpaceFile = z.infer<typeof SpaceFile>;

/** The mode a space was made with; `undefined` before it was. */
export function keptAuthMode(state: string, space: string): SpaceFile["auth"] | undefined {
  const path = join(trustPaths(state).provisioner(space), ProvisionerFile.Space);
  return existsSync(path) ? readKept(path, (text) => SpaceFile.parse(JSON.parse(text)).auth) : undefined;
}
