import type { Command } from "commander"; export function registerJoin(program: Command): void { program.command("join"); }
