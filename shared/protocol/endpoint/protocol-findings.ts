/**
 * Who of those that serve describes itself by another version of the discovery protocol (§11, supplement A):
 * callers of this version refuse to address it. One that has stopped answers nobody, and is no finding.
 */
import { PROTOCOL_VERSION } from "../contract/descriptor.ts";
import type { Finding } from "./provisioner-shapes.ts";
import type { ShownEndpoint } from "./reads-shapes.ts";

const GONE = "stopped";

export function protocolFindings(entries: readonly ShownEndpoint[]): Finding[] {
  return entries
    .filter(({ protocol, state }) => protocol.v !== PROTOCOL_VERSION && state !== GONE)
    .map(({ endpoint, instanceId, protocol: { v } }) => ({
      check: "protocol",
      level: "warning",
      message: `the instance ${instanceId} of ${endpoint} speaks protocol version ${v}; callers here know ${PROTOCOL_VERSION}`,
      next:
        v > PROTOCOL_VERSION
          ? "bring those who call it up to date; until then they refuse it"
          : "bring it up to date; until then callers refuse it",
    }));
}
