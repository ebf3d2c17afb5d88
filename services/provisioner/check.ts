/**
 * What is wrong with a space, as far as its provisioner can see: shapes of its stores, durables of its active
 * lifecycles and of its own, what serves by another protocol, the broker's clock. Each finding says what to do.
 */
import type { Drift } from "../../shared/broker/ensure.ts";
import { streamState, verifyConsumer, verifyStreams } from "../../shared/broker/ensure.ts";
import { isStart } from "../../shared/broker/lifecycle-durables.ts";
import { rowPage } from "../../shared/broker/reads.ts";
import { isUpgrade } from "../../shared/broker/upgrade.ts";
import {
  type ConsumerSpec,
  dlvConsumer,
  dmConsumer,
  recordWriterConsumer,
  roleConsumer,
  spaceStreams,
} from "../../shared/broker/resources.ts";
import { dotForm, parseDotForm } from "../../shared/protocol/base/principals.ts";
import { protocolFindings } from "../../shared/protocol/endpoint/protocol-findings.ts";
import type { Finding } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import { AclRow } from "../../shared/protocol/ledger/rows.ts";
import type { SpaceContext } from "./context.ts";
import { endpoints } from "./endpoints.ts";
import { parseJson } from "./rows.ts";

/** A skew under which timestamps of a conversation still read in order. */
const MAX_SKEW_MS = 2000;
const MAX_FINDINGS = 200;
const PAGE = 500;

export async function check(context: SpaceContext) {
  const specs = spaceStreams(context.space, { replicas: context.settings.replicas });
  const drift = await verifyStreams(context.store, specs);
  // Without its stores nothing else of the space can be looked at.
  if (drift.some(isGone))
    return { findings: drift.map((one) => ofDrift(context.space, one)), clockSkewMs: 0, checked: ["store shapes"] };
  const [durables, writer, protocols, clockSkewMs] = await Promise.all([
    missingDurables(context),
    recordWriter(context),
    foreignProtocols(context),
    clockSkew(context),
  ]);
  const findings: Finding[] = [
    ...drift.map((one) => ofDrift(context.space, one)),
    ...writer,
    ...durables,
    ...protocols,
  ];
  if (Math.abs(clockSkewMs) > MAX_SKEW_MS) {
    findings.push({
      check: "clock",
      level: "warning",
      message: `the broker's clock and the provisioner's differ by ${Math.round(clockSkewMs)} ms`,
      next: "let both machines keep time by NTP",
    });
  }
  return {
    findings: findings.slice(0, MAX_FINDINGS),
    clockSkewMs,
    checked: ["store shapes", "durables of active lifecycles", "record writer", "protocol of what serves", "clock"],
  };
}

const isGone = ({ field }: Drift): boolean => field === "stream";

function ofDrift(space: string, drift: Drift): Finding {
  const { stream, field, expected, found } = drift;
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
    message: `${stream}: ${field} is ${show(found)}, and ${show(expected)} is needed`,
    next: isUpgrade(space, drift)
      ? "an earlier version made it: cotal down and cotal up bring it up to date"
      : "stop the daemons, set it back (nats stream edit, as a user of the store account), and start them again",
  };
}

const show = (value: unknown): string => (value === undefined ? "missing" : JSON.stringify(value)).slice(0, 200);

/** Reads every ACL row: one stands for each active lifecycle that may read. */
async function missingDurables(context: SpaceContext): Promise<Finding[]> {
  const { store, names, space } = context;
  const findings: Finding[] = [];
  let cursor: number | undefined;
  do {
    const page = await rowPage(store, names.bucket.acl, { limit: PAGE, ...(cursor === undefined ? {} : { cursor }) });
    for (const row of page.rows) {
      const holder = row.kind === "value" ? holderOf(row.key, parseJson(row.data)) : undefined;
      if (holder === undefined) continue;
      for (const spec of holder.durables(space)) {
        // Where an inbox begins is its own affair (§8): anything else that differs is a finding.
        const drift = (await verifyConsumer(store, spec)).filter((one) => !isStart(one));
        findings.push(...drift.map((one) => ofDurable(holder.who, spec, one)));
        if (findings.length >= MAX_FINDINGS) return findings;
      }
    }
    cursor = page.cursor;
  } while (cursor !== undefined);
  return findings;
}

function ofDurable(who: string, { stream, name }: ConsumerSpec, { field, expected, found }: Drift): Finding {
  const missing = field === "consumer";
  return {
    check: "durable",
    level: "error",
    message: missing
      ? `${who} has no ${name} in ${stream}: it receives nothing there`
      : `${name} in ${stream}: ${field} is ${show(found)}, and ${show(expected)} is needed`,
    next: `end it and mint it again: cotal deprovision ${who}`,
  };
}

/** What instances report is read through this one; without it the listing of endpoints is old. */
async function recordWriter({ store, space }: SpaceContext): Promise<Finding[]> {
  const spec = recordWriterConsumer(space);
  const drift = await verifyConsumer(store, spec);
  return drift.map(({ field, expected, found }) => ({
    check: "record writer",
    level: "error",
    message:
      field === "consumer"
        ? `${spec.name} in ${spec.stream} is gone: what instances report is not written`
        : `${spec.name} in ${spec.stream}: ${field} is ${show(found)}, and ${show(expected)} is needed`,
    next: "remove it (nats consumer rm, as a user of the store account): the provisioner makes it anew by itself",
  }));
}

/** A caller of this version refuses what answers by another version of the discovery protocol (§11). */
async function foreignProtocols(context: SpaceContext): Promise<Finding[]> {
  const findings: Finding[] = [];
  let cursor: number | undefined;
  do {
    const page = await endpoints(context, cursor === undefined ? {} : { cursor });
    findings.push(...protocolFindings(page.endpoints));
    ({ cursor } = page);
  } while (cursor !== undefined && findings.length < MAX_FINDINGS);
  return findings;
}

function holderOf(key: string, value: unknown) {
  const [owner = "", actor = "", uid = ""] = key.split(".");
  const who = parseDotForm(`${owner}.${actor}`);
  const row = AclRow.safeParse(value);
  if (who === undefined || !row.success || !row.data.durables) return undefined;
  const { role } = row.data;
  return {
    who: dotForm(who),
    durables: (space: string): ConsumerSpec[] => [
      dmConsumer(space, who, uid, 1),
      dlvConsumer(space, who, uid),
      ...(role === undefined ? [] : [roleConsumer(space, role)]),
    ],
  };
}

/** The broker's clock minus ours, in milliseconds, half a round trip taken off. */
async function clockSkew({ store, names, now }: SpaceContext): Promise<number> {
  const asked = now();
  const { atMs } = await streamState(store, names.chat);
  return atMs - (asked + now()) / 2;
}
