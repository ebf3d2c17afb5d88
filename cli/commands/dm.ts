import type { Command } from "commander"; export function registerDm(program: Command): void { program.command("dm"); }
