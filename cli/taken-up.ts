/** Waits until the daemons of this broker serve a space that they have just been given. */
import { setTimeout as sleep } from "node:timers/promises";
import { CotalError, ErrorCode } from "../shared/protocol/base/errors.ts";
import { type Rail, operatorCredentials, withRail } from "./operator.ts";
import { reachExchange } from "./signin.ts";
import type { Target } from "./target.ts";

/** They take an added space up within ten seconds (architecture §2); a busy machine needs longer. */
const TAKEN_UP_MS = 60_000;

/** The settings of the space, once it can be used: where people sign in, once they can. */
export async function takenUp(at: Target): ReturnType<Rail["reads"]["space"]> {
  const served = await until(
    () => withRail(at, operatorCredentials(at), ({ reads }) => reads.space()),
    (thrown) => thrown instanceof CotalError && thrown.code === ErrorCode.Unavailable,
  );
  // Without the exchange nobody could sign in.
  if (served.settings.auth === "user")
    await until(
      () => reachExchange(at),
      () => true,
    );
  return served;
}

async function until<T>(ask: () => Promise<T>, isComing: (thrown: unknown) => boolean): Promise<T> {
  const deadline = performance.now() + TAKEN_UP_MS;
  for (;;) {
    try {
      return await ask();
    } catch (thrown) {
      if (!isComing(thrown) || performance.now() > deadline) throw thrown;
      await sleep(200);
    }
  }
}
