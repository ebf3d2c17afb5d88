import type { Command } from "commander"; export function registerHistory(program: Command): void { program.command("history"); }
