/**
 * The ledger's half of serving an endpoint (§13.1): whose name it is, an instance's issuance gate, and the
 * credentials that it serves with.
 *
 * A first registration: stage · reserve the id · gate born frozen · (spec, by whoever registers) · gate
 * opened · credential row · gate touched. A takeover of the same instance: gate frozen · every credential
 * revoked · `barrier` · epoch and reopening in one compare-and-set · credential row · gate touched.
 *
 * Invariants
 * 1. A name has one owner for good (§13.2); an instance id is drawn here, reserved like a lifecycle's UID,
 *    and never used again.
 * 2. An operation's id comes from the user key that asks, so a retry converges, and of two processes that
 *    take one instance over at once the last one serves and the other is refused.
 *
 * The gate is moved in `serving-gate.ts`, the credential entered in `serving-credential.ts`.
 */
import { canonicalDigest } from "../protocol/base/canonical.ts";
import { ErrorCode } from "../protocol/base/errors.ts";
import { dotForm } from "../protocol/base/principals.ts";
import { ServiceNameRow, endpointKey } from "../protocol/ledger/endpoint-rows.ts";
import { isConflict } from "./moves.ts";
import { enterOnce } from "./serving-credential.ts";
import { begin, open } from "./serving-gate.ts";
import { heldOf } from "./serving-held.ts";
import { refuse } from "./serving-keys.ts";
import type { AssignRequest, EnterRequest, ServingLedger, ServingParts } from "./serving-type.ts";
import { createOrRead } from "./store.ts";

const ROUNDS = 8;

export function servingLedger(parts: ServingParts): ServingLedger {
  return {
    assign: (request) => assign(parts, request),
    begin: (request) => settled(() => begin(parts, request)),
    open: (request) => settled(() => open(parts, request)),
    enter: (request) => enter(parts, request),
    held: async (cursor) => heldOf(await parts.gatePage(cursor)),
  };
}

async function assign({ ledger, space, accountKey }: ServingParts, { endpoint, owner, by }: AssignRequest) {
  const requestDigest = canonicalDigest({ endpoint, owner });
  const { value } = await createOrRead(ledger, "auth", endpointKey.name(endpoint), ServiceNameRow, {
    v: 1,
    kind: "service-name",
    accountPublicKey: accountKey,
    space,
    endpoint,
    owner,
    claimReference: dotForm(by),
    requestId: `assign-${requestDigest.slice(-32)}`,
    requestDigest,
  });
  if (value.owner === owner && value.endpoint === endpoint) return;
  throw refuse(ErrorCode.AlreadyExists, `the name ${endpoint} belongs to another owner`, "choose another name");
}

async function enter(parts: ServingParts, request: EnterRequest): Promise<void> {
  const wrote = { row: false };
  await settled(() => enterOnce(parts, request, wrote));
}

async function settled<T>(run: () => Promise<T>): Promise<T> {
  for (let round = 1; ; round += 1) {
    try {
      return await run();
    } catch (error) {
      if (!isConflict(error) || round === ROUNDS) throw error;
    }
  }
}
