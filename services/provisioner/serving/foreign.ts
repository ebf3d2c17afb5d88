/** Names that somebody else's endpoint may have (§13.2). */
import { CotalError, ErrorCode, Outcome, badRequest } from "../../../shared/protocol/base/errors.ts";
import { isCoreEndpoint, isEndpointName } from "../../../shared/protocol/endpoint/grammar.ts";

/** Throws `bad-request` for what is no name, `permission-denied` for a name of one label. */
export function demandForeign(endpoint: string): void {
  if (!isEndpointName(endpoint)) {
    throw badRequest(`${JSON.stringify(endpoint.slice(0, 80))} is no endpoint name`, "use DNS labels: com.acme.deploy");
  }
  if (!isCoreEndpoint(endpoint)) return;
  throw new CotalError(
    ErrorCode.PermissionDenied,
    `${endpoint} is a name of one label, and those are this project's own`,
    { outcome: Outcome.NotExecuted, next: "use a name under a domain of yours, turned around: com.acme.deploy" },
  );
}
