/**
 * Settings of a space (decisions H6, H49, H54): one closed row under `=space` in the channel
 * registry, written by the provisioner, read by everyone.
 */
import { z } from "zod";
import { groupCount } from "../ledger/member-rows.ts";

export const AuthMode = z.enum(["static", "user", "open"]);
export type AuthMode = z.infer<typeof AuthMode>;

/** Limits that every minted credential carries (decision H67), by class of holder. */
export const ConnectionLimits = z.strictObject({
  /** Subscriptions of one connection; -1 for no limit. */
  subs: z.number().int().min(-1),
  /** Largest payload in bytes; -1 for the server's own. */
  payload: z.number().int().min(-1),
});
export type ConnectionLimits = z.infer<typeof ConnectionLimits>;

export const SpaceSettings = z.strictObject({
  v: z.literal(1),
  space: z.string(),
  auth: AuthMode,
  /** Reads of clients are mediated, always (decision H50). */
  reads: z.literal("mediated"),
  replicas: z.union([z.literal(1), z.literal(3)]),
  /** Member groups that the fan-out is to have (`delivery`); how many it has, the markers say. */
  groups: groupCount,
  /** Principal of each daemon, dot-form, by service name. */
  daemons: z.record(z.string(), z.string()),
  limits: z.strictObject({ agent: ConnectionLimits }),
});
export type SpaceSettings = z.infer<typeof SpaceSettings>;

export const DEFAULT_LIMITS: SpaceSettings["limits"] = { agent: { subs: 1000, payload: 262_144 } };
