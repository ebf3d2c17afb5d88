/**
 * An open space (decision H57): nobody's identity is proved and there is no ledger, so nothing is kept for members and
 * no request to a role is taken. What remains are the reads, which are mediated here too: there is one way to ask.
 */
import { randomBytes } from "node:crypto";
import { patiently } from "../../shared/client/patiently.ts";
import { keepRegistered } from "../../shared/client/registered.ts";
import { within } from "../../shared/client/shutdown.ts";
import { inboxPrefix } from "../../shared/protocol/base/broker-subjects.ts";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import { OPEN_OWNER, dotForm, drawLifecycleUid, drawNonce, principal } from "../../shared/protocol/base/principals.ts";
import { DELIVERY_CLUSTER } from "../../shared/protocol/endpoint/delivery-contract.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import type { HandlerTable } from "../../shared/serve/serve.ts";
import { mediatorOf, readHandlers } from "./mediator/mediator.ts";
import { openAcl } from "./mediator/read-list.ts";
import type { Dial, OpenSpaceOptions, ServedSpace } from "./open-options.ts";
import { serveDelivery } from "./serve-delivery.ts";
import { readSettings } from "./settings.ts";

/** Its instance is drawn anew at each opening: nothing outlives a process where nobody has an identity. */
const EPOCH = 1;
const FAREWELL_MS = 1000;

export async function openUnguarded(options: OpenSpaceOptions, dial: Dial): Promise<ServedSpace> {
  const { space, signal, waiting } = options;
  const me = { principal: principal(OPEN_OWNER, EndpointName.Delivery), uid: drawLifecycleUid(randomBytes) };
  const connection = await dial("front", { inboxPrefix: inboxPrefix(me.uid, drawNonce(randomBytes)) });
  const { nc } = connection;
  const silent = "the space is not set up yet";
  const next = "start its provisioner: it sets the space up; this is tried again by itself";
  await patiently({ signal, waiting, silent, next }, () => readSettings(nc, space));
  const incarnation = { instanceId: me.uid, epoch: EPOCH };
  const registration = keepRegistered({ connection, space, endpoint: EndpointName.Delivery, me, ...incarnation });
  const served = await serveDelivery(options, {
    front: nc,
    readFront: nc,
    incarnation,
    registration,
    handlers: { ...refusing(), ...readHandlers(mediatorOf(space, nc, openAcl)) },
  });
  registration.begin();
  return {
    principal: dotForm(me.principal),
    epoch: EPOCH,
    stopIntake: async () => {
      await served.stop();
      await within(registration.end(), connection.isUp() ? FAREWELL_MS : 0);
    },
    renew: () => Promise.resolve(),
  };
}

/** What needs an identity, each command with its refusal. */
function refusing(): HandlerTable {
  const refuse = (command: string) => () =>
    Promise.reject(
      new CotalError(ErrorCode.FailedPrecondition, `this space is open, and serves no ${command}`, {
        outcome: Outcome.NotExecuted,
        next: "what is missed while one is away stands in the history; a space made without --open keeps copies",
      }),
    );
  return Object.fromEntries(DELIVERY_CLUSTER.commands.map(({ name }) => [name, refuse(name)]));
}
