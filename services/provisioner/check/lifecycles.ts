/**
 * Everybody who has a read list: are his durables there and right, is anything of his stuck, is his gate open?
 *
 * Durables are read as lists, 256 in an answer; gates by leader reads, a bounded number at once.
 */
import { type ConsumerState, consumersOf } from "../../../shared/broker/consumers.ts";
import { type Drift, consumerDrift } from "../../../shared/broker/ensure.ts";
import { isStart } from "../../../shared/broker/lifecycle-durables.ts";
import { rowPage } from "../../../shared/broker/reads.ts";
import { type ConsumerSpec, dlvConsumer, dmConsumer, roleConsumer } from "../../../shared/broker/resources.ts";
import { dotForm, parseDotForm } from "../../../shared/protocol/base/principals.ts";
import type { Finding } from "../../../shared/protocol/endpoint/provisioner-shapes.ts";
import { AclRow, GateRow } from "../../../shared/protocol/ledger/rows.ts";
import type { GateReader, SpaceContext } from "../context.ts";
import { parseJson } from "../../../shared/protocol/base/json.ts";
import { MAX_FINDINGS, differs, error, warning } from "./finding.ts";

const PAGE = 500;
/** Leader reads of gates at once. */
const GATES_AT_ONCE = 64;
/** An operation takes seconds; a gate that is frozen so long waits for somebody. */
const FROZEN_MS = 60_000;

type Member = { readonly who: string; readonly uid: string; readonly durables: readonly ConsumerSpec[] };

/** `brokerNow`: epoch milliseconds. Gates are seen where this daemon writes the ledger, and not where people sign in. */
export async function lifecycles(context: SpaceContext, brokerNow: number): Promise<Finding[]> {
  const { store, names } = context;
  const durables = new Map<string, ConsumerState>();
  for (const stream of [names.dm, names.dlv, names.task]) {
    for await (const one of consumersOf(store, stream)) durables.set(`${stream} ${one.name}`, one);
  }
  const findings: Finding[] = [];
  // Where people sign in the plane writes the ledger.
  const isSignedIn = context.authority === undefined;
  let cursor: number | undefined;
  do {
    const page = await rowPage(store, names.bucket.acl, { limit: PAGE, ...(cursor === undefined ? {} : { cursor }) });
    const members = page.rows.flatMap((row) => (row.kind === "value" ? memberOf(context, row.key, row.data) : []));
    findings.push(...members.flatMap((member) => ofDurables(member, durables, isSignedIn)));
    findings.push(...(await ofGates(context, members, brokerNow)));
    ({ cursor } = page);
  } while (cursor !== undefined && findings.length < MAX_FINDINGS);
  return findings;
}

function memberOf({ space }: SpaceContext, key: string, data: Uint8Array): Member[] {
  const [owner = "", actor = "", uid = ""] = key.split(".");
  const who = parseDotForm(`${owner}.${actor}`);
  const row = AclRow.safeParse(parseJson(data));
  if (who === undefined || !row.success) return [];
  const { durables, role } = row.data;
  const specs = durables
    ? [
        dmConsumer(space, who, uid, 1),
        dlvConsumer(space, who, uid),
        ...(role === undefined ? [] : [roleConsumer(space, role)]),
      ]
    : [];
  return [{ who: dotForm(who), uid, durables: specs }];
}

function ofDurables(
  { who, durables }: Member,
  found: ReadonlyMap<string, ConsumerState>,
  isSignedIn: boolean,
): Finding[] {
  const next = isSignedIn
    ? `end it and grant it again: cotal actor retire ${who}, then cotal actor grant`
    : `end it and mint it again: cotal deprovision ${who}`;
  return durables.flatMap((spec) => {
    const state = found.get(`${spec.stream} ${spec.name}`);
    if (state === undefined) {
      return [error("durable", `${who} has no ${spec.name} in ${spec.stream}: it receives nothing there`, next)];
    }
    const drift = consumerDrift(spec, state.config).filter((one: Drift) => !isStart(one));
    return [
      ...drift.map((one) => error("durable", differs(`${spec.name} in ${spec.stream}`, one), next)),
      ...ofStuck(who, spec, state),
    ];
  });
}

/** At its limit of unacknowledged messages a durable gives nothing more, to nobody. */
function ofStuck(who: string, { stream, name, config }: ConsumerSpec, { out, pending }: ConsumerState): Finding[] {
  if (out < config.max_ack_pending || pending === 0) return [];
  return [
    warning(
      "stuck durable",
      `${name} in ${stream} has ${out} messages out that nobody acknowledges, and ${pending} wait behind them`,
      `look at ${who}: what it was given it has to handle or give back; stop it, and they come again after a minute`,
    ),
  ];
}

async function ofGates({ authority }: SpaceContext, members: readonly Member[], brokerNow: number): Promise<Finding[]> {
  if (authority === undefined) return [];
  const findings: Finding[] = [];
  for (let at = 0; at < members.length; at += GATES_AT_ONCE) {
    const some = members.slice(at, at + GATES_AT_ONCE);
    findings.push(...(await Promise.all(some.map((one) => ofGate(authority.gate, one, brokerNow)))).flat());
  }
  return findings;
}

async function ofGate(read: GateReader, { who, uid }: Member, brokerNow: number): Promise<Finding[]> {
  const entry = await read(uid);
  if (entry === undefined) {
    return [error("gate", `${who} has a read list and no gate`, `end it and make it again: cotal deprovision ${who}`)];
  }
  const gate = GateRow.safeParse(parseJson(entry.data)).data;
  const minutes = Math.floor((brokerNow - entry.timeMs) / 60_000);
  if (gate?.state !== "frozen" || brokerNow - entry.timeMs < FROZEN_MS) return [];
  const { kind, opId } = gate.op;
  return [
    error(
      "frozen gate",
      `${who} gets no credential: ${kind} ${opId} has held its gate for ${minutes} min`,
      kind === "retirement"
        ? `finish its end: cotal deprovision ${who}`
        : "run the command again that began it; if nobody knows which, end it: cotal deprovision " + who,
    ),
  ];
}
