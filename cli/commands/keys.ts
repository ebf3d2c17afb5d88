/** `cotal keys rotate` and `keys finish`: new keys for a space, beside the former ones for as long as it takes. */
import type { Command } from "commander";
import { z } from "zod";
import { livePlane } from "../../launcher/plane-record.ts";
import { TrustCommand, runTrust } from "../../launcher/trust-program.ts";
import { assertKnown } from "../operator.ts";
import { type Invocation, handle } from "../program.ts";
import { reached } from "../reach.ts";
import { isUserSpace } from "../signin.ts";

export function registerKeys(program: Command): void {
  const keys = program
    .command("keys")
    .description(
      "keys of a space: what signs for it, seals its callout and signs its bearers; " +
        "the broker's own (operator, system account) are those of all its spaces, and stay",
    );
  handle(keys.command("rotate").description("draw new ones; what the former have signed goes on"), rotate);
  handle(keys.command("finish").description("refuse whatever the former ones have signed"), finish);
}

/** Of all daemons of `cotal up`. */
const RESTART = "restart the space (cotal down, then cotal up)";

const Answer = z.looseObject({ keys: z.number(), switched: z.number().default(0) });

async function rotate(invocation: Invocation<object>): Promise<void> {
  const { at, count } = await run(invocation, TrustCommand.Rotate);
  const { out } = invocation;
  const { space } = at;
  out.item({ kind: "rotated", space, keys: count }, `${space} has ${count} new signing keys`);
  const restart = livePlane(at.state) === undefined ? "restart every daemon of the space, one after another" : RESTART;
  out.note(`${restart}${isUserSpace(at) ? "" : "; mint again what was minted"}; then cotal keys finish`);
}

async function finish(invocation: Invocation<object>): Promise<void> {
  const { at, count, switched } = await run(invocation, TrustCommand.FinishRotation);
  const { space } = at;
  const text = count === 0 ? `no rotation of ${space} was under way` : `${count} former signing keys count no more`;
  invocation.out.item({ kind: "rotation-finished", space, keys: count, switched }, text);
  if (switched > 0) {
    const again = livePlane(at.state) === undefined ? "restart the auth service" : RESTART;
    invocation.out.note(`${again} once more: until then the auth service signs and takes bearers of the former key`);
  }
}

async function run({ target }: Invocation<object>, command: TrustCommand) {
  const at = target();
  assertKnown(at);
  const { state, space, server } = at;
  const { keys, switched } = Answer.parse(await reached(at, () => runTrust(command, { state, space, server })));
  return { at, count: keys, switched };
}
