/**
 * What `describe` answers: an endpoint's contract, cut down to what the asker may do (supplement A).
 *
 * Invariants
 * 1. The cut follows a view that the server trusts, never what the asker claims. Without a fresh view the
 *    answer is `unavailable`, never the whole and never nothing.
 * 2. An endpoint that declares its descriptor public shows all of it to everyone.
 * 3. A caller reads `protocol.v` before anything else, and refuses a version that it does not implement:
 *    a descriptor is never read as something weaker.
 *
 * The cut hides no secret: artifacts are public. It says what is worth trying.
 */
import { z } from "zod";
import { CotalError, ErrorCode, Outcome } from "../base/errors.ts";
import { DIGEST } from "../base/grammar.ts";
import { type AuthzMode } from "../endpoint/modes.ts";
import { isEndpointName } from "../endpoint/names.ts";
import { type Contract } from "./contract.ts";
import { CommandDocument, Urn, count } from "./documents.ts";

/** The discovery protocol this project speaks: from the start with `effect` on every command. */
export const PROTOCOL_VERSION = 2;

const digest = z.string().regex(DIGEST);

export const DescribedCommand = z.looseObject({ ...CommandDocument.shape, cluster: Urn, contractDigest: digest });
export type DescribedCommand = z.infer<typeof DescribedCommand>;

export const Descriptor = z.looseObject({
  endpoint: z.string().refine(isEndpointName),
  protocol: z.looseObject({ v: z.literal(PROTOCOL_VERSION) }),
  /** The store revision of the instance's `svc….spec`: what a caller keeps its resolution under. */
  registrationRevision: count,
  clusters: z.array(z.looseObject({ urn: Urn, revision: count, digest })),
  commands: z.array(DescribedCommand),
});
export type Descriptor = z.infer<typeof Descriptor>;

/** What a trusted party says of one caller, just now. `undefined`: the untargeted form. */
export type TrustedView = {
  admits(command: string, mode: AuthzMode | undefined): boolean;
};

export type Described = {
  readonly endpoint: string;
  readonly registrationRevision: number;
  readonly contract: Contract;
  readonly publicDescriptor?: boolean;
};

/** The answer for one asker. `view` is absent where none could be had. */
export function describeFor(described: Described, view: TrustedView | undefined): Descriptor {
  if (described.publicDescriptor === true) return whole(described);
  if (view === undefined) {
    throw new CotalError(ErrorCode.Unavailable, "what you may see of this endpoint can't be said now", {
      outcome: Outcome.NotExecuted,
      next: "ask again in a moment",
    });
  }
  return cut(whole(described), view);
}

function whole({ endpoint, registrationRevision, contract }: Described): Descriptor {
  return {
    endpoint,
    protocol: { v: PROTOCOL_VERSION },
    registrationRevision,
    clusters: contract.clusters.map(({ document: { urn, revision }, digest }) => ({ urn, revision, digest })),
    commands: [...contract.commands.values()].map(({ document, cluster, contractDigest }) => ({
      ...document,
      cluster,
      contractDigest,
    })),
  };
}

/** Leaves what the view admits: commands, of a targeted one the modes, and the clusters of what is left. */
export function cut(descriptor: Descriptor, view: TrustedView): Descriptor {
  const commands = descriptor.commands.flatMap((command): DescribedCommand[] => {
    const { name, targeted, modes = [] } = command;
    if (!targeted) return view.admits(name, undefined) ? [command] : [];
    const admitted = modes.filter((mode) => view.admits(name, mode));
    return admitted.length === 0 ? [] : [{ ...command, modes: admitted }];
  });
  const shown = new Set(commands.map(({ cluster }) => cluster));
  return { ...descriptor, commands, clusters: descriptor.clusters.filter(({ urn }) => shown.has(urn)) };
}

/** Parses an answer of `describe`. */
export function readDescriptor(answer: unknown): Descriptor {
  const version = z.looseObject({ protocol: z.looseObject({ v: count }) }).safeParse(answer);
  if (version.success && version.data.protocol.v !== PROTOCOL_VERSION) {
    throw new CotalError(
      ErrorCode.UnsupportedVersion,
      `the endpoint describes itself by protocol version ${version.data.protocol.v}; this client knows ${PROTOCOL_VERSION}`,
      { next: "use a client of that version" },
    );
  }
  const parsed = Descriptor.safeParse(answer);
  if (parsed.success) return parsed.data;
  throw new CotalError(ErrorCode.ContractInvalid, "the endpoint's descriptor is malformed", {
    next: "report it to whoever runs that endpoint",
    cause: parsed.error,
  });
}
