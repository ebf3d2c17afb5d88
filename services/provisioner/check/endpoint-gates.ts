/**
 * Gates of serving instances that have stood frozen for longer than any registration takes (§13.1), and how each is completed.
 *
 * A takeover that is alive waits for the end of its predecessor's credential with the gate shut: it is given that
 * long before anybody is told of it. Nothing is opened here (decision 43).
 */
import type { HeldEndpointGate } from "../../../shared/ledger/serving-held.ts";
import { toCotalError } from "../../../shared/protocol/base/errors.ts";
import type { Finding } from "../../../shared/protocol/endpoint/provisioner-shapes.ts";
import type { Serving } from "../context.ts";
import { MAX_FINDINGS, error, warning } from "./finding.ts";

const CHECK = "endpoint gate";
/** A registration takes seconds; a gate that is frozen so long waits for somebody. */
const FROZEN_MS = 60_000;

type Looking = { readonly ledger: Pick<Serving["ledger"], "held">; readonly lifeSeconds: number };

/** `brokerNow`: epoch milliseconds. An open space has no such gates. */
export async function endpointGates(serving: Looking | undefined, brokerNow: number): Promise<Finding[]> {
  if (serving === undefined) return [];
  try {
    return await walked(serving, brokerNow);
  } catch (thrown) {
    const { message, next } = toCotalError(thrown);
    return [error(CHECK, `no gate of a serving instance was looked at: ${message}`, next ?? "run cotal doctor again")];
  }
}

async function walked({ ledger, lifeSeconds }: Looking, brokerNow: number): Promise<Finding[]> {
  const findings: Finding[] = [];
  let cursor: number | undefined;
  do {
    const page = await ledger.held(cursor);
    findings.push(
      ...page.gates.filter((gate) => brokerNow - gate.sinceMs >= patienceMs(gate, lifeSeconds)).map(ofGate),
      ...page.unreadable.map((key) =>
        error(
          CHECK,
          `the ledger row ${key} does not parse, or is nobody's`,
          "nothing is decided on it; compare it with a backup, or restore the space",
        ),
      ),
    );
    ({ cursor } = page);
  } while (cursor !== undefined && findings.length < MAX_FINDINGS);
  return findings.slice(0, MAX_FINDINGS);
}

const patienceMs = ({ kind }: HeldEndpointGate, lifeSeconds: number): number =>
  FROZEN_MS + (kind === "takeover" ? lifeSeconds * 1000 : 0);

function ofGate({ endpoint, instanceId, owner, kind, opId, sinceMs }: HeldEndpointGate): Finding {
  const since = new Date(sinceMs).toISOString();
  return warning(
    CHECK,
    `the instance ${instanceId} of ${endpoint} gets no credential: the ${kind} ${opId} of ${owner} has held its gate since ${since}`,
    kind === "retirement"
      ? `start ${endpoint} without an instance id: it registers a new one, and this one is over`
      : `if the process that began it is gone, start ${endpoint} with the option instanceId: "${instanceId}", which completes it; other instances serve meanwhile`,
  );
}
