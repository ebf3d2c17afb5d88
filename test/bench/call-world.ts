/**
 * What the `call` bench runs on: a broker as this project configures one, a caller and servers with the rows
 * that an agent's and a service's credential hold, and a login with no bounds for the bare side.
 */
import { fork } from "node:child_process";
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { type NatsConnection, connect } from "@nats-io/transport-node";
import { NO_SUBJECT_CACHE } from "../../services/trust/server-config.ts";
import { watchDenials } from "../../shared/client/denials.ts";
import { type EndpointClient, createEndpointClient } from "../../shared/client/endpoint-client.ts";
import { type Rail, createRail } from "../../shared/client/rail.ts";
import { pooledRandom } from "../../shared/client/random.ts";
import { agentRows } from "../../shared/grants/client-profiles.ts";
import { serviceRows } from "../../shared/grants/host-profiles.ts";
import { permissionsOf } from "../../shared/grants/permissions.ts";
import { Account, type Row } from "../../shared/grants/row.ts";
import { inboxPrefix } from "../../shared/protocol/base/broker-subjects.ts";
import { OPEN_OWNER, drawLifecycleUid, drawNonce, principal } from "../../shared/protocol/base/principals.ts";
import type { Caller } from "../../shared/protocol/endpoint/grammar.ts";
import { startBroker } from "../support/nats-server.ts";
import { COMMAND, type CallServerSetup, ENDPOINT, EPOCH, FLOOR, SILENT, SPACE } from "./call-contract.ts";
import { ask, endChild } from "./child.ts";

/** May do everything. */
export const OPEN_USER = "open";

const SERVERS = 4;
const CROWD = "crowd";
const FLOOR_USER = "floor";

export type CallWorld = {
  /** The caller's connection, with an agent's rows. */
  readonly nc: NatsConnection;
  readonly caller: Caller;
  readonly inboxPrefix: string;
  /** With no bounds. */
  readonly open: NatsConnection;
  readonly newRail: () => Rail;
  readonly newClient: () => EndpointClient;
  /** One more of four servers with one instance each; the first is the floor's too, and answers the reads. */
  readonly addServer: () => Promise<void>;
  /** Ends all of them, and starts one process with so many instances. */
  readonly startCrowd: () => Promise<void>;
  readonly close: () => Promise<void>;
};

const PROGRAM = join(import.meta.dirname, "call-server.ts");
const draw = (): string => drawLifecycleUid(randomBytes);

export async function openCallWorld(crowd: number): Promise<CallWorld> {
  const caller = { principal: principal(OPEN_OWNER, "bench"), uid: draw() };
  const inboxNonce = drawNonce(randomBytes);
  const ids = { servers: Array.from({ length: SERVERS }, draw), crowd: Array.from({ length: crowd }, draw) };
  const floor = draw();
  const broker = await startBroker({
    lines: [
      NO_SUBJECT_CACHE,
      `authorization: ${JSON.stringify({
        users: [
          login(OPEN_USER),
          login("caller", callerRows(caller, inboxNonce)),
          ...ids.servers.map((id, at) => login(`server${at}`, rowsOf(ENDPOINT, id))),
          login(
            CROWD,
            ids.crowd.flatMap((id) => rowsOf(ENDPOINT, id)),
          ),
          login(FLOOR_USER, rowsOf(FLOOR, floor)),
        ],
      })}`,
    ],
  });
  const prefix = inboxPrefix(caller.uid, inboxNonce);
  // As this project connects, and what is best for the bare side: no stack trace for each request.
  const dial = (user: string, more = {}) =>
    connect({ servers: broker.url, user, pass: user, noAsyncTraces: true, ...more });
  const nc = await dial("caller", { inboxPrefix: prefix });
  const open = await dial(OPEN_USER);
  const denials = watchDenials(nc);
  const newRail = (): Rail =>
    createRail({ nc, space: SPACE, caller, name: "bench", inboxPrefix: prefix, denials, random: pooledRandom() });
  const running: { readonly stop: () => Promise<void> }[] = [];
  const end = async (): Promise<void> => {
    for (const server of running.splice(0)) await server.stop();
  };
  return {
    nc,
    caller,
    inboxPrefix: prefix,
    open,
    newRail,
    newClient: () => createEndpointClient({ rail: newRail() }),
    addServer: async () => {
      const at = running.length;
      const first = at === 0 ? { floor: { user: FLOOR_USER, instance: floor } } : {};
      const instances = ids.servers.slice(at, at + 1);
      running.push(await startServer({ url: broker.url, user: `server${at}`, instances, reads: at === 0, ...first }));
    },
    startCrowd: async () => {
      await end();
      running.push(await startServer({ url: broker.url, user: CROWD, instances: ids.crowd, reads: true }));
    },
    close: async () => {
      await end();
      await nc.close();
      await open.close();
      await broker.stop();
    },
  };
}

async function startServer(setup: CallServerSetup): Promise<{ readonly stop: () => Promise<void> }> {
  const child = fork(PROGRAM);
  await ask(child, "setup", setup);
  return { stop: () => endChild(child) };
}

/** An agent of a few channels, which holds a capability of each endpoint of the bench. */
function callerRows(holder: Caller, inboxNonce: string): Row[] {
  return agentRows({
    space: SPACE,
    holder,
    inboxNonce,
    allowSubscribe: ["general", "team.>"],
    allowPublish: ["general", "team.>"],
    role: "reviewer",
    commands: [ENDPOINT, FLOOR, SILENT].map((endpoint) => ({ endpoint, command: COMMAND, scatter: true })),
    serves: false,
  });
}

function rowsOf(endpoint: string, instanceId: string): Row[] {
  const holder = { principal: principal(OPEN_OWNER, `svc_${instanceId}`), uid: draw() };
  const inboxNonce = drawNonce(randomBytes);
  return serviceRows({ space: SPACE, holder, inboxNonce, instanceId, epoch: EPOCH, endpoint, commands: [COMMAND] });
}

/** A user of the broker's configuration; without rows it may do everything. */
function login(user: string, rows?: readonly Row[]): object {
  if (rows === undefined) return { user, password: user };
  const { pub: publish, sub: subscribe } = permissionsOf(rows, Account.Front);
  return { user, password: user, permissions: { publish, subscribe } };
}
