/** `cotal who`: the roster, from a read that was completed (field case 16). */
import type { Command } from "commander";
import type { RosterEntry } from "../../shared/protocol/chat/presence.ts";
import { askingCredentials } from "../identity.ts";
import { withRail } from "../operator.ts";
import { type Invocation, handle } from "../program.ts";
import { wholeRoster } from "../roster.ts";
import { oneLine, table } from "../text.ts";

export function registerWho(program: Command): void {
  const command = program.command("who").description("list who is here").option("--all", "also who is offline");
  handle<{ readonly all?: boolean }>(command, who);
}

async function who({ options, out, target }: Invocation<{ readonly all?: boolean }>): Promise<void> {
  const at = target();
  const credentials = await askingCredentials(at, options, out, {});
  const roster = await withRail(at, credentials, ({ reads }) => wholeRoster(reads));
  const shown = roster.entries
    .filter(({ live }) => live || options.all === true)
    .toSorted((a, b) => (a.name === b.name ? compare(a.id, b.id) : compare(a.name, b.name)));
  if (out.json) for (const { kind: type, ...entry } of shown) out.item({ kind: "member", type, ...entry });
  else if (shown.length === 0) out.item({ kind: "roster" }, "nobody is here");
  else out.item({ kind: "roster" }, ...table(shown.map(row)));
  if (roster.unreadable > 0) out.note(`${roster.unreadable} records could not be read and are left out`);
}

const compare = (a: string, b: string): number => (a < b ? -1 : a > b ? 1 : 0);

function row({ name, id, status, role, activity }: RosterEntry): string[] {
  return [
    oneLine(name),
    status,
    role === undefined ? "" : `role ${oneLine(role)}`,
    oneLine(id),
    oneLine(activity ?? ""),
  ];
}
