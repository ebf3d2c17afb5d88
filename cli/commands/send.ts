import type { Command } from "commander"; export function registerSend(program: Command): void { program.command("send"); }
