/**
 * The ledger's half of registering somebody's endpoint, on the provisioner's request (decisions H14, H45).
 *
 * Invariants
 * 1. The provisioner of this space asks and nobody else; it has read whose request it is off the subject.
 * 2. The plane writes. Where it is held elsewhere this refuses.
 * 3. A credential's row ends no later than a serve credential lives.
 */
import { PROFILES } from "../../../shared/grants/matrix.ts";
import type { ServingLedger } from "../../../shared/ledger/serving-type.ts";
import { servingLedger } from "../../../shared/ledger/serving.ts";
import { expiryBarrier } from "../../../shared/ledger/serving-barrier.ts";
import { ErrorCode, badRequest } from "../../../shared/protocol/base/errors.ts";
import { dotForm, principal } from "../../../shared/protocol/base/principals.ts";
import type { ServingAnswer, ServingArgs } from "../../../shared/protocol/endpoint/auth-shapes.ts";
import { type Caller, EndpointName } from "../../../shared/protocol/endpoint/grammar.ts";
import { endpointKey } from "../../../shared/protocol/ledger/endpoint-rows.ts";
import { type PlaneParts, demandPlane, refusal } from "./parts.ts";

const CLOCKS_APART = 60;

export function createServing(parts: PlaneParts): (caller: Caller, args: ServingArgs) => Promise<ServingAnswer> {
  const ledger = servingLedger({
    ledger: parts.ledger,
    space: parts.space,
    accountKey: parts.frontAccount,
    barrier: expiryBarrier(parts),
    gatePage: (cursor) => parts.ledgerPage("auth", endpointKey.allGates, cursor),
    now: parts.now,
    random: parts.random,
  });
  return async ({ principal: who }, args) => {
    await demandPlane(parts);
    if (!parts.isReservedOwner(who.owner) || who.actor !== EndpointName.Provisioner) {
      throw refusal(
        ErrorCode.PermissionDenied,
        `${dotForm(who)} is not the provisioner`,
        "register with the provisioner",
      );
    }
    return step(ledger, args, Math.floor(parts.now() / 1000));
  };
}

async function step(ledger: ServingLedger, args: ServingArgs, seconds: number): Promise<ServingAnswer> {
  switch (args.step) {
    case "assign":
      await ledger.assign({ ...args, by: principal(args.by.owner, args.by.actor) });
      return {};
    case "begin":
      return { begun: await ledger.begin(args) };
    case "open":
      await ledger.open(args);
      return {};
    case "enter":
      if (args.expires > seconds + PROFILES.service.lifeSeconds + CLOCKS_APART) {
        throw badRequest("a serve credential lives for minutes", "mint it with its profile's own life");
      }
      await ledger.enter(args);
      return {};
    case "held": {
      const { gates, unreadable, ...rest } = await ledger.held(args.cursor);
      return { held: { ...rest, gates: [...gates], unreadable: [...unreadable] } };
    }
  }
}
