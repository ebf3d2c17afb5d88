/** `cotal keys rotate` and `keys finish`: new keys for a space, beside the former ones for as long as it takes. */
import type { Command } from "commander";
import { z } from "zod";
import { TrustCommand, runTrust } from "../../launcher/trust-program.ts";
import { assertKnown } from "../operator.ts";
import { type Invocation, handle } from "../program.ts";
import { reached } from "../reach.ts";

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

const Answer = z.looseObject({ keys: z.number(), switched: z.number().default(0) });

async function rotate(invocation: Invocation<object>): Promise<void> {
  const { space, count } = await run(invocation, TrustCommand.Rotate);
  const { out } = invocation;
  out.item({ kind: "rotated", space, keys: count }, `${space} has ${count} new signing keys`);
  out.note("restart every daemon of the space, one after another; mint again what was minted; then cotal keys finish");
}

async function finish(invocation: Invocation<object>): Promise<void> {
  const { space, count, switched } = await run(invocation, TrustCommand.FinishRotation);
  const text = count === 0 ? `no rotation of ${space} was under way` : `${count} former signing keys count no more`;
  invocation.out.item({ kind: "rotation-finished", space, keys: count, switched }, text);
  if (switched > 0) {
    invocation.out.note("restart the auth service once more: until then it signs and takes bearers of the former key");
  }
}

async function run({ target }: Invocation<object>, command: TrustCommand) {
  const at = target();
  assertKnown(at);
  const { state, space, server } = at;
  const { keys, switched } = Answer.parse(await reached(at, () => runTrust(command, { state, space, server })));
  return { space, count: keys, switched };
}
