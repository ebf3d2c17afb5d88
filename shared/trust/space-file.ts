/** `space.json`: the accounts that the provisioner of a space signs for, and how people get in. */
import { z } from "zod";
import { AuthMode } from "../protocol/chat/space-settings.ts";

export const SpaceFile = z.strictObject({
  v: z.literal(1),
  /** Public identity keys of the two accounts. */
  front: z.string(),
  store: z.string(),
  auth: AuthMode.exclude(["open"]),
});
export type SpaceFile = z.infer<typeof SpaceFile>;
