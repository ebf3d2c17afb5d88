/** Shapes of `caller-view`: what one caller may ask of an endpoint, for whoever serves it (decision H21). */
import { z } from "zod";
import { LIFECYCLE_UID, OWNER_TOKEN, PRINCIPAL_TOKEN } from "../base/grammar.ts";
import { isEndpointName } from "./names.ts";

export const CallerViewArgs = z.strictObject({
  endpoint: z.string().refine(isEndpointName, "not an endpoint name"),
  /** As the broker named him in the subject of his request. */
  caller: z.strictObject({
    owner: z.string().regex(OWNER_TOKEN),
    actor: z.string().regex(PRINCIPAL_TOKEN),
    uid: z.string().regex(LIFECYCLE_UID),
  }),
});
export type CallerViewArgs = z.infer<typeof CallerViewArgs>;

export const CallerViewAnswer = z.looseObject({
  /**
   * What the broker has accepted for that lifecycle, of this endpoint alone. Empty: nothing, and also where
   * the lifecycle is nobody's. `null`: the space is open, and nothing limits anybody.
   */
  capabilities: z.array(z.string()).nullable(),
});
export type CallerViewAnswer = z.infer<typeof CallerViewAnswer>;
