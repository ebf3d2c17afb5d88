/** `cotal status`: what runs on this state folder, and how each part is. */
import type { Command } from "commander";
import { type ChildStatus, type PlaneStatus, planeStatus } from "../../launcher/control.ts";
import type { AuthMode } from "../../shared/protocol/chat/space-settings.ts";
import { Plane } from "../../shared/protocol/base/subjects.ts";
import type { LivenessGrade, ResponderState } from "../../shared/protocol/chat/liveness.ts";
import { Exit } from "../exit.ts";
import type { Item, Output } from "../output.ts";
import { planeLiveness } from "../plane-liveness.ts";
import { type Invocation, handle } from "../program.ts";
import { stateOf } from "../target.ts";
import { oneLine, table } from "../text.ts";

const REMARKS: Readonly<Partial<Record<AuthMode, string>>> = {
  open: " (nobody's identity is proved)",
  user: " (development issuer: whoever can read the state folder is its one person)",
};

/** What is not known is never told as health (§6.1). */
const PLANE_SAYS: Readonly<Record<ResponderState, string>> = {
  bound: "served",
  unbound: "not served; requests to roles wait",
  stale: "changing hands",
  unknown: "could not be asked",
};

export function registerStatus(program: Command): void {
  handle(program.command("status").description("show the broker and the daemons of this machine's space"), status);
}

async function status({ options, out }: Invocation<object>): Promise<Exit> {
  const state = stateOf(options);
  const seen = await planeStatus(state);
  const delivery = await deliveryOf(state, seen);
  out.item(itemOf(state, seen, delivery), ...linesOf(out, state, seen, delivery));
  if (seen.kind !== "running") return Exit.Unreachable;
  return seen.children.every(({ health }) => health === "ok") ? Exit.Done : Exit.Refused;
}

/** An open space has no delivery plane. */
async function deliveryOf(state: string, seen: PlaneStatus): Promise<LivenessGrade | undefined> {
  if (seen.kind !== "running" || seen.record.auth === "open" || seen.record.phase !== "ready") return undefined;
  const { space, server } = seen.record;
  return planeLiveness({ state, space, server }, Plane.Delivery);
}

function itemOf(state: string, seen: PlaneStatus, delivery: LivenessGrade | undefined): Item {
  if (seen.kind === "none") return { kind: "status", running: false, state };
  const { server, port, space, auth, phase, startedAt, brokerVersion } = seen.record;
  const facts = { state, server, port, space, auth, startedAt, brokerVersion };
  if (seen.kind === "crashed") {
    const left = seen.left.map(({ name, process }) => ({ name, pid: process.pid }));
    return { kind: "status", running: false, crashed: true, ...facts, left };
  }
  const planes = delivery === undefined ? {} : { planes: { delivery } };
  return { kind: "status", running: true, phase, ...facts, parts: seen.children, ...planes };
}

function linesOf(out: Output, state: string, seen: PlaneStatus, delivery: LivenessGrade | undefined): string[] {
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
    out.style(health === "ok" ? "green" : "red", health),
    pid === 0 ? "" : `process ${pid}`,
    restarts === 0 ? "" : `restarts ${restarts}`,
  ]);
  const planes = delivery === undefined ? [] : ["", `delivery plane: ${PLANE_SAYS[delivery.responder]}`];
  return [...head, "", ...table(parts), ...seen.children.flatMap(failing), ...planes];
}

function failing({ name, failing: checks }: ChildStatus): string[] {
  return checks.map((check) => `  ${name} ${check.name}: ${oneLine(check.detail)}; ${oneLine(check.next)}`);
}
