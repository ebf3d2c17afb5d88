/** The auth service's spaces: what is counted, logged and opened for each. */
import type { Check } from "../../shared/daemon/health.ts";
import type { Context } from "../../shared/daemon/lifecycle.ts";
import { countServed } from "../../shared/daemon/served.ts";
import { type Spaces, keepSpaces as keep } from "../../shared/daemon/spaces.ts";
import { ownUsers } from "../../shared/broker/own-credential.ts";
import { toCotalError } from "../../shared/protocol/base/errors.ts";
import type { authConfig } from "./config.ts";
import { edgeSettings } from "./edge-settings.ts";
import { spacesWithAuthKeys } from "./keys.ts";
import { openSpace } from "./open-space.ts";
import type { ClaimState } from "./plane/claim.ts";
import { chatSayings } from "./say-chat.ts";
import { evidenceSayings } from "./say-evidence.ts";
import { resumeSayings } from "./say-resume.ts";
import { type Sparing, createSparing } from "../../shared/daemon/sparing.ts";

/** Lines about refusals, and as many about faults, in all spaces together. */
const LINES_PER_MINUTE = 120;

export type Values = ReturnType<typeof authConfig.read>["values"];

export function keepSpaces(context: Context<Values>): Spaces {
  const { values, log } = context;
  const lines = (): Sparing => createSparing(LINES_PER_MINUTE, () => performance.now());
  const sparing = { refusals: lines(), faults: lines() };
  const edge = edgeSettings(context, sparing);
  const count = countServed(context.metrics);
  const saying = chatSayings(context, sparing.faults);
  const ofEvidence = evidenceSayings(context);
  const sayPlane = planeSayings(context);
  const resumed = resumeSayings(context, sparing.faults);
  const users = ownUsers();
  return keep({
    context,
    spaces: values.spaces,
    discover: () => spacesWithAuthKeys(values.keys),
    open: async (hooks) => {
      const { space } = hooks;
      const { onChat, onSweep } = saying(space);
      const opened = await openSpace({
        ...hooks,
        servers: values.servers,
        keysPattern: values.keys,
        users,
        roles: { edge: values.roles !== "plane", plane: values.roles !== "edge" },
        plane: {
          policy: values.policy,
          defaults: {
            allowSubscribe: values.defaultSubscribe,
            allowPublish: values.defaultPublish,
            capabilities: [],
          },
          actorsPerOwner: values.actorsPerOwner,
          localManager: values.localManager,
        },
        chat: { slotsPerOwner: values.chatSlots, onSweep },
        evidence: ofEvidence(space),
        edge: { ...edge(space), onChat },
        concurrency: values.concurrency,
        perCaller: values.perCaller,
        onServed: (event) => count(space, event),
        onUpgraded: (steps) => {
          for (const { stream, field } of steps) {
            log.warn("a store of an earlier version was brought up to date", { space, stream, field });
          }
        },
        onPassedOver: (passed) => log.warn("a credential got no row in the ledger", { space, ...passed }),
        onPlane: sayPlane(space),
        onResume: resumed(space),
      });
      const { principal, epoch, faces } = opened;
      log.info("the space is served", { space, principal, epoch, exchange: faces });
      return opened;
    },
  });
}

const PLANE_WORDS: Readonly<Record<ClaimState["kind"], string>> = {
  held: "this process holds the authority plane of the space",
  "live-peer": "another process holds the authority plane of the space; this one waits and lets in who is enrolled",
  inconclusive: "whether the holder of the authority plane is alive can't be told; this process waits",
  outrun: "another process was faster to take the authority plane; this one waits",
  lost: "a scanner of the authority plane has died, and the plane of the space with it: it refuses everything, and is claimed from the beginning",
  "let-go": "the authority plane is let go for a moment: its scanners get new credentials",
  failed: "the authority plane can't be claimed; it is tried again",
};

const QUIET: readonly ClaimState["kind"][] = ["held", "live-peer", "outrun", "let-go"];

/** Called at each opening of a space: what kept the plane from it before is over then. */
function planeSayings({ log, metrics, health }: Context<Values>): (space: string) => (state: ClaimState) => void {
  const held = metrics.gauge({
    name: `${metrics.prefix}plane_held`,
    help: "1 where this process holds the authority plane of the space, else 0. The sum over all processes is 1.",
    labels: ["space"],
  });
  const checks = new Map<string, Check>();
  return (space) => {
    const mend = (): void => {
      checks.get(space)?.remove();
      checks.delete(space);
    };
    mend();
    held.set({ space }, 0);
    return (state) => {
      const { kind, ...rest } = state;
      held.set({ space }, kind === "held" ? 1 : 0);
      const fields = { space, plane: kind, ...("cause" in rest ? { err: rest.cause } : rest) };
      if (QUIET.includes(kind)) log.info(PLANE_WORDS[kind], fields);
      else log.warn(PLANE_WORDS[kind], fields);
      if (state.kind !== "failed") return mend();
      const { message, next = "read the log of this process; it is tried again by itself" } = toCotalError(state.cause);
      const check = checks.get(space) ?? health.check(`claim:${space}`);
      checks.set(space, check);
      check.fail(`${PLANE_WORDS.failed}: ${message}`, next);
    };
  };
}
