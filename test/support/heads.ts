/** Governance heads as a registration leaves them, for tests of what a capability opens. */
import { kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { spaceNames } from "../../shared/protocol/base/names.ts";
import { recordKey } from "../../shared/protocol/ledger/record-kinds.ts";
import { type GovernRow, type GovernedCommand, governed } from "../../shared/protocol/ledger/service-rows.ts";
import { put } from "./raw-jetstream.ts";
import type { TestSpace } from "./space.ts";

const HEX = "ab".repeat(32);

/** The head after one registration of these commands. */
export function headOf(endpoint: string, commands: readonly GovernedCommand[]): GovernRow {
  return governed(undefined, {
    endpoint,
    registration: { opId: "op1", instanceId: "i".repeat(26), specDigest: `sha256:${HEX}` },
    bindings: [],
    clusters: [],
    commands,
  });
}

/** Its key in the records bucket. */
export const headKey = (endpoint: string): string => recordKey("govern", { endpoint });

/** Writes a head into a running space, as its provisioner would. */
export async function putHead(space: TestSpace, head: GovernRow, name?: string): Promise<void> {
  const at = name ?? space.spaces[0] ?? "main";
  const key = kvKey(spaceNames(at).bucket.records, headKey(head.endpoint));
  const { error } = await put(await space.store(at), key, JSON.stringify(head));
  if (error !== undefined) throw new Error(`the head was not stored: ${error.description ?? error.code}`);
}

/** An echo: two commands that name no capability, of which one has a target, and one that asks for `audit`. */
export const ECHO = "com.example.echo";
export const echoHead = headOf(ECHO, [
  { command: "say" },
  { command: "stop", modes: ["self", "owner", "any", "child", "ledger", "handle", "exact"] },
  { command: "log", capability: "audit" },
]);
