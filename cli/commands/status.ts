/** `cotal status`: what runs on this state folder, and how each part is. */
import type { Command } from "commander";
import { type ChildStatus, type PlaneStatus, planeStatus } from "../../launcher/control.ts";
import type { AuthMode } from "../../shared/protocol/chat/space-settings.ts";
import { Exit } from "../exit.ts";
import type { Item, Output } from "../output.ts";
import { type Invocation, handle } from "../program.ts";
import { stateOf } from "../target.ts";
import { oneLine, table } from "../text.ts";

const REMARKS: Readonly<Partial<Record<AuthMode, string>>> = {
  open: " (nobody's identity is proved)",
  user: " (development issuer: whoever can read the state folder is its one person)",
};

export function registerStatus(program: Command): void {
  handle(program.command("status").description("show the broker and the daemons of this machine's space"), status);
}

async function status({ options, out }: Invocation<object>): Promise<Exit> {
  const state = stateOf(options);
  const seen = await planeStatus(state);
  out.item(itemOf(state, seen), ...linesOf(out, state, seen));
  if (seen.kind !== "running") return Exit.Unreachable;
  return seen.children.every(isWell) ? Exit.Done : Exit.Refused;
}

const isWell = ({ health }: Pick<ChildStatus, "health">): boolean => health === "ok" || health === "starting";

function itemOf(state: string, seen: PlaneStatus): Item {
  if (seen.kind === "none") return { kind: "status", running: false, state };
  const { server, port, space, auth, phase, startedAt, brokerVersion } = seen.record;
  const facts = { state, server, port, space, auth, startedAt, brokerVersion };
  if (seen.kind === "crashed") {
    const left = seen.left.map(({ name, process }) => ({ name, pid: process.pid }));
    return { kind: "status", running: false, crashed: true, ...facts, left };
  }
  return { kind: "status", running: true, phase, ...facts, parts: seen.children };
}

function linesOf(out: Output, state: string, seen: PlaneStatus): string[] {
  if (seen.kind === "none") return [`nothing runs on ${state}`, "start it with cotal up"];
  const { server, space, auth, phase, startedAt, brokerVersion } = seen.record;
  if (seen.kind === "crashed") {
    const left = seen.left.map(({ name, process }) => `${name} (process ${process.pid})`).join(", ");
    return [
      `the launcher on ${state} was killed${left === "" ? "" : `, and left ${left}`}`,
      "cotal up starts it again, cotal down clears up",
    ];
  }
  const head = table([
    ["space", space],
    ["phase", phase],
    ["address", server],
    ["auth", `${auth}${REMARKS[auth] ?? ""}`],
    ["state", state],
    ["broker", `nats-server ${brokerVersion}`],
    ["since", startedAt],
  ]);
  const parts = seen.children.map(({ name, health, pid, restarts }) => [
    name,
    out.style(isWell({ health }) ? "green" : "red", health),
    pid === 0 ? "" : `process ${pid}`,
    restarts === 0 ? "" : `restarts ${restarts}`,
  ]);
  return [...head, "", ...table(parts), ...seen.children.flatMap(failing)];
}

function failing({ name, failing: checks }: ChildStatus): string[] {
  return checks.map((check) => `  ${name} ${check.name}: ${oneLine(check.detail)}; ${oneLine(check.next)}`);
}
