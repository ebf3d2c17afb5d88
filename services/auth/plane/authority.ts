/** The plane, put together: what the edge asks, and what the operator changes. */
import { dotForm } from "../../../shared/protocol/base/principals.ts";
import { readActor } from "./actor-reads.ts";
import { createAdministration } from "./actors.ts";
import type { ActorAdministration, Authority } from "./authority-type.ts";
import { createCheck } from "./check.ts";
import { enrol } from "./enrol.ts";
import type { PlaneParts } from "./parts.ts";
import { createRecordConnect } from "./record-connect.ts";
import { createTurns } from "./turns.ts";

export function createAuthority(parts: PlaneParts): Authority & ActorAdministration {
  const inTurn = createTurns();
  return {
    readActor: (p) => readActor(parts.ledger, p),
    // One actor's exchanges would only take each other's compare-and-set.
    enrol: (p, who) => inTurn(dotForm(p), () => enrol(parts, p, who)),
    ...createCheck(parts),
    recordConnect: createRecordConnect(parts),
    ...createAdministration(parts),
  };
}
