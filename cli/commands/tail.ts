import type { Command } from "commander"; export function registerTail(program: Command): void { program.command("tail"); }
