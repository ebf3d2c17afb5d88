/**
 * Whose operation and whose epoch it is: both are told by the user key that asked (§13.1).
 *
 * An epoch is served by the key that opened it and by no other; a key that an instance was taken from never serves it
 * again.
 */
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { type EndpointGateRow, ServingStage, endpointKey } from "../protocol/ledger/endpoint-rows.ts";
import type { EnterRequest, ServingParts } from "./serving-type.ts";
import { readRow } from "./store.ts";

export const activationOf = (userKey: string): string => `serve-${userKey}`;
export const takeoverOf = (userKey: string): string => `take-${userKey}`;

/** Did this key open the epoch that the gate stands at? */
export async function isOpener(
  { ledger }: Pick<ServingParts, "ledger">,
  { lastTakeoverOpId }: EndpointGateRow,
  { instanceId, userKey }: Pick<EnterRequest, "instanceId" | "userKey">,
): Promise<boolean> {
  if (lastTakeoverOpId !== undefined) return lastTakeoverOpId === takeoverOf(userKey);
  const staged = await readRow(ledger, "auth", endpointKey.stage(activationOf(userKey)), ServingStage);
  return staged?.value.instanceId === instanceId;
}

/** The refusal of a process that is not the one any more. */
export function moved(endpoint: string, instanceId: string): CotalError {
  return refuse(
    ErrorCode.Expired,
    `this process does not serve ${endpoint} as ${instanceId} any more: another one has taken its place`,
    "stop it, or register again",
  );
}

/** A refusal before anything was done. */
export function refuse(code: ErrorCode, message: string, next: string): CotalError {
  return new CotalError(code, message, { outcome: Outcome.NotExecuted, next });
}
