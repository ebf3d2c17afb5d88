/**
 * A daemon's own service record (supplement A): the provisioner writes it on request.
 *
 * Invariants
 * 1. Nothing waits for it: the provisioner of the same space may itself wait for this daemon. Until it has
 *    answered, `describe` says `unavailable`, and every command is served.
 * 2. It is asked again until it has answered, each time later; and once more when serving ends.
 */
import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import type { Connection } from "../broker/connect.ts";
import { createCaller } from "./caller.ts";
import { watchDenials } from "./denials.ts";
import { ProvisionerCommand } from "../grants/commands.ts";
import { type Caller, EndpointName } from "../protocol/endpoint/grammar.ts";
import { RegisterAnswer, type OwnRegisterArgs } from "../protocol/endpoint/provisioner-shapes.ts";
import type { z } from "zod";

const DEADLINE_MS = 5_000;
/** A stop waits no longer for the word that it stops. */
const FAREWELL_MS = 1_000;
const PAUSE_MS = { first: 200, most: 10_000 };

export type Registration = {
  readonly revision: () => number | undefined;
  readonly begin: () => void;
  readonly end: () => Promise<void>;
};

export type RegistrationParts = {
  readonly connection: Pick<Connection, "nc" | "inboxPrefix">;
  readonly space: string;
  /** What it serves. */
  readonly endpoint: EndpointName;
  readonly me: Caller;
  /** Its own, or one of those that its processes share out. */
  readonly instanceId: string;
  readonly epoch: number;
};

type State = z.infer<typeof OwnRegisterArgs>["state"];

export function keepRegistered({
  connection,
  space,
  endpoint,
  me,
  instanceId,
  epoch,
}: RegistrationParts): Registration {
  const { nc, inboxPrefix } = connection;
  const stopping = new AbortController();
  const call = createCaller({
    nc,
    space,
    caller: me,
    name: me.principal.actor,
    inboxPrefix,
    denials: watchDenials(nc),
    random: randomBytes,
  });
  const tell = async (state: State, deadlineMs: number): Promise<number> => {
    const args = { endpoint, instanceId, epoch, state };
    const { data } = await call(EndpointName.Provisioner, ProvisionerCommand.Register, args, { deadlineMs });
    return RegisterAnswer.parse(data).registrationRevision;
  };
  let revision: number | undefined;
  let running = Promise.resolve();

  const untilTold = async (): Promise<void> => {
    for (let pause = PAUSE_MS.first; !stopping.signal.aborted; pause = Math.min(pause * 2, PAUSE_MS.most)) {
      try {
        revision = await tell("ready", DEADLINE_MS);
        return;
      } catch {
        // Whatever it was, it may pass; `describe` says meanwhile that this instance is not registered.
        await sleep(pause, undefined, { signal: stopping.signal }).catch(() => undefined);
      }
    }
  };

  return {
    revision: () => revision,
    begin: () => {
      running = untilTold();
    },
    end: async () => {
      stopping.abort();
      if (revision === undefined) return;
      await running;
      await tell("stopped", FAREWELL_MS).catch(() => undefined);
    },
  };
}
