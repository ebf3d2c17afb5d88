/**
 * What a caller may see of an endpoint of somebody else's, as the space says it just now (supplement A,
 * decision H21): the view that `describe` is cut to.
 *
 * Invariants
 * 1. It is the ledger's word and nothing that the caller says: he is named by what the broker let through.
 * 2. Where it can't be had there is none, and `describe` is `unavailable`: never the whole, never nothing.
 * 3. An answer is used for a second at most, for one caller alone, and so many of them are kept.
 *    Equal questions at one time are one question.
 * 4. Who comes with an issued generation has an authority of its own that nobody can be asked about yet:
 *    there is no view of it.
 */
import { LRUCache } from "lru-cache";
import type { Call } from "../client/caller.ts";
import { ProvisionerCommand } from "../grants/commands.ts";
import { type CotalError, toCotalError } from "../protocol/base/errors.ts";
import { dotForm } from "../protocol/base/principals.ts";
import type { Contract } from "../protocol/contract/contract.ts";
import type { TrustedView } from "../protocol/contract/descriptor.ts";
import { type Capability, opens, parseCapability } from "../protocol/endpoint/capabilities.ts";
import { CallerViewAnswer } from "../protocol/endpoint/caller-view-shapes.ts";
import { AuthzMode, type Caller, EndpointName } from "../protocol/endpoint/grammar.ts";

export type TrustedViewOptions = {
  /** As an actor that may serve: a serve credential itself asks nobody. */
  readonly call: Call;
  readonly endpoint: string;
  readonly contract: Pick<Contract, "commands">;
  /** How long the space may take to say. */
  readonly deadlineMs?: number;
  /** Why there was no view. */
  readonly onFault?: (error: CotalError) => void;
  /** Monotonic milliseconds. */
  readonly now?: () => number;
};

export type ViewOf = (caller: Caller) => Promise<TrustedView | undefined>;

const DEADLINE_MS = 2000;
const KEEP_MS = 1000;
const MAX_KEPT = 1024;
/** Questions at one time. */
const MAX_ASKED = 256;

type Kept = { readonly view: TrustedView; readonly at: number };

export function trustedView(options: TrustedViewOptions): ViewOf {
  const { call, endpoint, deadlineMs = DEADLINE_MS, onFault, now = () => performance.now() } = options;
  const kept = new LRUCache<string, Kept>({ max: MAX_KEPT });
  const asked = new Map<string, Promise<TrustedView | undefined>>();

  const ask = async (key: string, { principal: { owner, actor }, uid }: Caller): Promise<TrustedView | undefined> => {
    // Fresh as of the moment at which it was asked, not answered.
    const at = now();
    try {
      const args = { endpoint, caller: { owner, actor, uid } };
      const { data } = await call(EndpointName.Provisioner, ProvisionerCommand.CallerView, args, { deadlineMs });
      const view = viewOf(options, CallerViewAnswer.parse(data));
      kept.set(key, { view, at });
      return view;
    } catch (thrown) {
      onFault?.(toCotalError(thrown));
      return undefined;
    }
  };

  return (caller) => {
    if (caller.generation !== undefined) return Promise.resolve(undefined);
    const key = `${dotForm(caller.principal)}.${caller.uid}`;
    const known = kept.get(key);
    if (known !== undefined && now() - known.at < KEEP_MS) return Promise.resolve(known.view);
    kept.delete(key);
    const there = asked.get(key);
    if (there !== undefined) return there;
    if (asked.size >= MAX_ASKED) return Promise.resolve(undefined);
    const coming = ask(key, caller).finally(() => asked.delete(key));
    asked.set(key, coming);
    return coming;
  };
}

type EndpointCapability = Extract<Capability, { kind: "endpoint" }>;

/** The modes that a capability opens: about the caller himself, and about actors of his own owner. */
const OPENED: ReadonlySet<AuthzMode> = new Set([AuthzMode.Self, AuthzMode.Owner]);

function viewOf({ endpoint, contract }: TrustedViewOptions, { capabilities }: CallerViewAnswer): TrustedView {
  if (capabilities === null) return { admits: () => true };
  const held = capabilities
    .map(parseCapability)
    .filter((one): one is EndpointCapability => one?.kind === "endpoint" && one.endpoint === endpoint);
  return {
    admits: (command, mode) => {
      const document = contract.commands.get(command)?.document;
      if (document === undefined || (mode !== undefined && !OPENED.has(mode))) return false;
      return held.some((one) => opens(one, { command, capability: document.capability }));
    },
  };
}
