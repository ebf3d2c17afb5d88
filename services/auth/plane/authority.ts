/** The plane, put together: what the edge asks, and what the operator changes. */
import { dotForm } from "../../../shared/protocol/base/principals.ts";
import { readActor } from "./actor-reads.ts";
import { createAdministration } from "./actors.ts";
import type { ActorAdministration, Authority } from "./authority-type.ts";
import { createCheck } from "./check.ts";
import { demandRow, enrol, proveAgent } from "./enrol.ts";
import { ownManagers } from "./managers.ts";
import type { PlaneParts } from "./parts.ts";
import { createRecordConnect } from "./record-connect.ts";
import { createTurns } from "../../../shared/ledger/turns.ts";
import { chooseView } from "./views.ts";

export function createAuthority(parts: PlaneParts): Authority & ActorAdministration {
  const inTurn = createTurns();
  return {
    readActor: (p) => readActor(parts.ledger, p),
    // One actor's exchanges would only take each other's compare-and-set.
    enrol: (p, who) => inTurn(dotForm(p), () => enrol(parts, inTurn, p, who)),
    proveAgent: (p, secret) => proveAgent(parts, p, secret),
    chooseView: async (p, by, request) => {
      const row = await demandRow(parts, p, by);
      return chooseView(parts, row, request);
    },
    managersOf: (owner) => ownManagers(parts, owner),
    ...createCheck(parts),
    recordConnect: createRecordConnect(parts),
    ...createAdministration(parts),
  };
}
