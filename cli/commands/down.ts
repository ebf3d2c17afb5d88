/** `cotal down`: ends the plane of this state folder and waits until it is gone. */
import type { Command } from "commander";
import { stopPlane } from "../../launcher/control.ts";
import { type Invocation, handle } from "../program.ts";
import { stateOf } from "../target.ts";

export function registerDown(program: Command): void {
  handle(program.command("down").description("stop the space that runs on this machine"), down);
}

async function down({ options, out }: Invocation<object>): Promise<void> {
  const state = stateOf(options);
  const ran = await stopPlane(state);
  out.item({ kind: "stopped", state, ran }, ran ? "stopped" : `nothing ran on ${state}`);
}
