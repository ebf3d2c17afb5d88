/**
 * What is wrong with a space, as far as its provisioner can see; each finding says what to do.
 *
 * Siblings: `lifecycles.ts` (durables, gates), `endpoint-gates.ts`, `groups.ts` (who writes copies), `queues.ts` (requests that wait),
 * `disk.ts`.
 */
import { type Drift, streamState, verifyConsumer, verifyStreams } from "../../../shared/broker/ensure.ts";
import { recordWriterConsumer, spaceStreams } from "../../../shared/broker/resources.ts";
import { isUpgrade } from "../../../shared/broker/upgrade.ts";
import { protocolFindings } from "../../../shared/protocol/endpoint/protocol-findings.ts";
import type { Finding } from "../../../shared/protocol/endpoint/provisioner-shapes.ts";
import { registryPage } from "../../../shared/serve/registry.ts";
import type { SpaceContext } from "../context.ts";
import { disk } from "./disk.ts";
import { endpointGates } from "./endpoint-gates.ts";
import { MAX_FINDINGS, differs, warning } from "./finding.ts";
import { groups } from "./groups.ts";
import { lifecycles } from "./lifecycles.ts";
import { queues } from "./queues.ts";

/** A skew under which timestamps of a conversation still read in order. */
const MAX_SKEW_MS = 2000;

const CHECKED = [
  "store shapes",
  "durables and gates of active lifecycles",
  "gates of serving instances",
  "member groups",
  "role queues",
  "record writer",
  "protocol of what serves",
  "disk",
  "clock",
];

export async function check(context: SpaceContext) {
  const specs = spaceStreams(context.space, { replicas: context.settings.replicas });
  const drift = await verifyStreams(context.store, specs);
  // Without its stores nothing else of the space can be looked at.
  if (drift.some(isGone))
    return { findings: drift.map((one) => ofDrift(context.space, one)), clockSkewMs: 0, checked: ["store shapes"] };
  const clockSkewMs = await clockSkew(context);
  const brokerNow = (): number => context.now() + clockSkewMs;
  const looked = await Promise.all([
    recordWriter(context),
    lifecycles(context, brokerNow()),
    groups(context, () => Promise.resolve(brokerNow())),
    queues(context, brokerNow()),
    foreignProtocols(context),
    endpointGates(context.serving, brokerNow()),
    disk(context),
  ]);
  const findings = [...drift.map((one) => ofDrift(context.space, one)), ...looked.flat(), ...clock(clockSkewMs)];
  return { findings: findings.slice(0, MAX_FINDINGS), clockSkewMs, checked: CHECKED };
}

function clock(skewMs: number): Finding[] {
  if (Math.abs(skewMs) <= MAX_SKEW_MS) return [];
  const message = `the broker's clock and the provisioner's differ by ${Math.round(skewMs)} ms`;
  return [warning("clock", message, "let both machines keep time by NTP")];
}

const isGone = ({ field }: Drift): boolean => field === "stream";

function ofDrift(space: string, drift: Drift): Finding {
  const { stream } = drift;
  if (isGone(drift)) {
    return {
      check: "store shape",
      level: "error",
      message: `${stream} is gone, with all that it held`,
      next: "put back the broker's store from a backup; cotal down and cotal up make an empty one",
    };
  }
  return {
    check: "store shape",
    level: "error",
    message: differs(stream, drift),
    next: isUpgrade(space, drift)
      ? "an earlier version made it: cotal down and cotal up bring it up to date"
      : "stop the daemons, set it back (nats stream edit, as a user of the store account), and start them again",
  };
}

/** Of the registry that is looked at in one go. */
const REGISTRY_BYTES = 400_000;

/** What instances report is read through this one; without it the listing of endpoints is old. */
async function recordWriter({ store, space }: SpaceContext): Promise<Finding[]> {
  const spec = recordWriterConsumer(space);
  const drift = await verifyConsumer(store, spec);
  return drift.map((one) => ({
    check: "record writer",
    level: "error",
    message:
      one.field === "consumer"
        ? `${spec.name} in ${spec.stream} is gone: what instances report is not written`
        : differs(`${spec.name} in ${spec.stream}`, one),
    next: "remove it (nats consumer rm, as a user of the store account): the provisioner makes it anew by itself",
  }));
}

/** A caller of this version refuses what answers by another version of the discovery protocol (§11). */
async function foreignProtocols(context: SpaceContext): Promise<Finding[]> {
  const findings: Finding[] = [];
  let cursor: number | undefined;
  do {
    const page = await registryPage(context, cursor, REGISTRY_BYTES);
    findings.push(...protocolFindings(page.endpoints));
    ({ cursor } = page);
  } while (cursor !== undefined && findings.length < MAX_FINDINGS);
  return findings;
}

/** The broker's clock minus ours, in milliseconds, half a round trip taken off. */
async function clockSkew({ store, names, now }: SpaceContext): Promise<number> {
  const asked = now();
  const { atMs } = await streamState(store, names.chat);
  return atMs - (asked + now()) / 2;
}
