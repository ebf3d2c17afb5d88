/** The broker version floor (supplement H): read from INFO, refused loudly below it. */
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";

export type Version = readonly [major: number, minor: number];

export const BROKER_FLOOR: Version = [2, 12];

/** Throws `failed-precondition` unless the version a server told in INFO reaches the floor. */
export function assertFloor(version: string, floor: Version = BROKER_FLOOR): void {
  const found = /^v?(\d{1,4})\.(\d{1,4})(?:[.-]|$)/.exec(version);
  const major = Number(found?.[1] ?? -1);
  const minor = Number(found?.[2] ?? -1);
  if (major > floor[0] || (major === floor[0] && minor >= floor[1])) return;
  throw new CotalError(
    ErrorCode.FailedPrecondition,
    `the broker is nats-server ${JSON.stringify(version.slice(0, 40))}, and ${floor.join(".")} is the oldest that works`,
    { outcome: Outcome.NotExecuted, next: `upgrade the broker to nats-server ${floor.join(".")} or newer` },
  );
}
