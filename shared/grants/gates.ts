/**
 * Size gates of a minted credential (§13.9, decision H32): refused at mint, with the entry named,
 * because past the broker's line limit a connection is dropped without a word.
 */
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import type { Permissions } from "./permissions.ts";

/** Policy bound of one user JWT, in bytes (supplement E). */
export const MAX_JWT_BYTES = 16 * 1024;

/** What the broker must be configured with, in bytes (supplement E). */
export const REQUIRED_CONTROL_LINE = 65_536;

/** The least `max_payload` of the broker: 256 KiB plus margin (supplement E). */
export const REQUIRED_PAYLOAD = 262_144 + 16_384;

/**
 * The most that the broker may give a login, in seconds. Whoever proves that nobody of an ended identity is left looks
 * later than that (`SETTLE_MS`): what a login that was under way brings in after the look is in nobody's proof. With TLS
 * the broker's default follows `tls.timeout`.
 */
export const MOST_LOGIN_SECONDS = 3;

/** What a broker's server allows, as it says itself. */
export type ServerLimits = {
  /** Bytes. */
  readonly maxControlLine: number;
  readonly maxPayload: number;
  /** How long a login may take. */
  readonly loginSeconds: number;
};

/** What is wrong with them: nothing is minted on such a server. `set`: what its configuration should say. */
export function limitFaults(limits: ServerLimits): readonly { readonly what: string; readonly set: string }[] {
  const low = (name: string, found: number, needed: number) =>
    found >= needed
      ? []
      : [{ what: `${name} is ${found}, and ${needed} are needed`, set: `${name} to ${needed} or more` }];
  const { maxControlLine, maxPayload, loginSeconds } = limits;
  return [
    ...low("max_control_line", maxControlLine, REQUIRED_CONTROL_LINE),
    ...low("max_payload", maxPayload, REQUIRED_PAYLOAD),
    ...(loginSeconds <= MOST_LOGIN_SECONDS
      ? []
      : [
          {
            what: `a login may take ${loginSeconds} s, and ${MOST_LOGIN_SECONDS} at most are allowed`,
            set: "authorization { timeout: 2 }",
          },
        ]),
  ];
}

/** The CONNECT line carries the JWT, the signature and the options; this is room for the rest. */
const CONNECT_OVERHEAD = 2048;

/**
 * Refuses a JWT over the policy bound. It names the longest entry of what was asked for (`chosen`:
 * channels, commands of endpoints), because that is what the asker can shorten.
 */
export function checkJwtSize(jwt: string, permissions: Permissions, chosen: readonly string[] = []): void {
  const size = Buffer.byteLength(jwt);
  if (size <= MAX_JWT_BYTES && size + CONNECT_OVERHEAD <= REQUIRED_CONTROL_LINE) return;
  const entries = chosen.length > 0 ? chosen : [...permissions.pub.allow, ...permissions.sub.allow];
  const longest = entries.reduce((a, b) => (b.length > a.length ? b : a), "");
  const shown = longest.length > 120 ? `${longest.slice(0, 120)}…` : longest;
  throw new CotalError(
    ErrorCode.ResourceExhausted,
    `the credential would take ${size} bytes, and ${MAX_JWT_BYTES} are allowed; ` +
      `it lists ${entries.length} entries, the longest has ${longest.length} characters: ${shown}`,
    {
      outcome: Outcome.NotExecuted,
      next: "name fewer or shorter channels, one pattern such as team.> for many, or fewer capabilities",
    },
  );
}
