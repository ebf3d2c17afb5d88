/**
 * `register`: an instance that serves tells of itself, or asks for a credential to serve with.
 *
 * The contract of one of this project's own endpoints is not asked for: it stands in the source that both
 * were built from. Whoever registers it is the daemon of that name, by its principal, and speaks for its own
 * instances alone. Somebody else's endpoint brings its contract (`serving/`).
 */
import type { z } from "zod";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import { samePrincipal } from "../../shared/protocol/base/principals.ts";
import type { Caller } from "../../shared/protocol/endpoint/grammar.ts";
import { isInstanceOf } from "../../shared/protocol/endpoint/instances.ts";
import { isOwnEndpoint } from "../../shared/protocol/endpoint/own-contracts.ts";
import type {
  OwnRegisterArgs,
  RegisterAnswer,
  RegisterArgs,
} from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import type { SpaceContext } from "./context.ts";
import { registerInstance, writeStatus } from "./service-records.ts";
import { registerService, renewService } from "./serving/service.ts";

export async function register(context: SpaceContext, caller: Caller, args: RegisterArgs): Promise<RegisterAnswer> {
  if ("state" in args) return registerOwn(context, caller, args);
  return "epoch" in args ? renewService(context, caller, args) : registerService(context, caller, args);
}

async function registerOwn(
  context: SpaceContext,
  { principal, uid }: Caller,
  { endpoint, instanceId, epoch, state }: z.infer<typeof OwnRegisterArgs>,
): Promise<RegisterAnswer> {
  const daemon = isOwnEndpoint(endpoint) ? context.daemon(endpoint) : undefined;
  const isItself = daemon !== undefined && samePrincipal(daemon, principal) && isInstanceOf(uid, instanceId);
  if (!isOwnEndpoint(endpoint) || !isItself) {
    throw new CotalError(ErrorCode.PermissionDenied, `this caller is not the daemon that serves ${endpoint} here`, {
      outcome: Outcome.NotExecuted,
      next: "only the daemon of that name registers its own instance",
    });
  }
  const instance = { endpoint, instanceId, owner: principal.owner };
  const registrationRevision = await registerInstance(context, instance);
  await writeStatus(context, instance, { epoch, state, observedSpecRevision: registrationRevision });
  return { registrationRevision, instanceId, epoch };
}
