/**
 * Who proves who somebody is, as the settings say.
 *
 * What can't work is refused when the process starts: found at the opening of a space it would be tried again
 * for ever, and each try opens connections and writes rows.
 */
import { badRequest } from "../../shared/protocol/base/errors.ts";
import { checkAddress } from "./edge/idp.ts";
import type { FaceSettings } from "./open-faces.ts";
import type { Values } from "./spaces.ts";

type Named = Pick<
  Values,
  | "idpIssuer"
  | "idpAudience"
  | "idpJwks"
  | "idpAlgorithms"
  | "idpScopes"
  | "idpDmReaderAudience"
  | "devIssuer"
  | "roles"
>;

const BOTH = "set COTAL_IDP_ISSUER and COTAL_IDP_AUDIENCE";

/** The identity provider, if there is one. Throws `bad-request` for settings that don't fit each other. */
export function idpSettings(values: Named): FaceSettings["idp"] {
  const { idpIssuer: issuer, idpAudience: audience, idpJwks: jwks, idpDmReaderAudience: dmReaderAudience } = values;
  if (issuer === undefined || audience === undefined) {
    if (issuer !== undefined) throw badRequest("COTAL_IDP_ISSUER is set, and COTAL_IDP_AUDIENCE is not", BOTH);
    if (audience !== undefined) throw badRequest("COTAL_IDP_AUDIENCE is set, and COTAL_IDP_ISSUER is not", BOTH);
    if (values.devIssuer || values.roles === "plane") return undefined;
    throw badRequest(
      "nothing proves who anybody is: there is no identity provider",
      `${BOTH}; on a machine of your own, COTAL_AUTH_DEV_ISSUER=true`,
    );
  }
  for (const address of [issuer, ...(jwks === undefined ? [] : [jwks])]) checkAddress(address);
  return {
    issuer,
    audience,
    algorithms: values.idpAlgorithms,
    scopes: values.idpScopes,
    ...(jwks === undefined ? {} : { jwks }),
    ...(dmReaderAudience === undefined ? {} : { dmReaderAudience }),
  };
}
