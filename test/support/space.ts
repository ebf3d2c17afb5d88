/**
 * A whole space for a test file: a real broker with this project's own trust, a real provisioner
 * process, and the means to mint, connect, look into the store, and hurt each part.
 */
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import type { NatsConnection } from "@nats-io/transport-node";
import { type Connection, openConnection } from "../../shared/broker/connect.ts";
import { type Call, createCaller } from "../../shared/client/caller.ts";
import { watchDenials } from "../../shared/client/denials.ts";
import { leaderLast } from "../../shared/broker/reads.ts";
import { inboxPrefix, kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { bucketStream, spaceNames } from "../../shared/protocol/base/names.ts";
import { SPACE_KEY } from "../../shared/protocol/chat/channel-config.ts";
import { OPEN_OWNER, drawLifecycleUid, drawNonce, principal } from "../../shared/protocol/base/principals.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { MintAnswer } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import { type Credential, formatCreds, parseCreds, readCredsFile } from "../../shared/trust/creds.ts";
import { trustPaths } from "../../shared/trust/folder.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { ReadCommand } from "../../shared/grants/commands.ts";
import { type DeliveryService, spawnDelivery } from "./delivery-process.ts";
import { type IssuedAudit, auditIssues } from "./issued-audit.ts";
import { type TestBroker, startBroker } from "./nats-server.ts";
import { keepState, printed } from "./printed.ts";
import { lookInto } from "./store-looker.ts";

const ROOT = join(import.meta.dirname, "..", "..");
const run = promisify(execFile);

export type SpaceOptions = {
  /** `user`: people sign in; `auth-service.ts` starts what they sign in to. */
  readonly auth?: "static" | "user" | "open";
  readonly spaces?: readonly string[];
  /** False: no delivery service runs, so nothing is read for anybody. */
  readonly delivery?: boolean;
  /** Settings of the provisioner, beside what it needs. */
  readonly env?: Readonly<Record<string, string>>;
};

export type MintOptions = {
  readonly actor: string;
  readonly owner?: string;
  readonly name?: string;
  readonly profile?: "agent" | "observer" | "admin" | "channel-writer" | "probe";
  readonly subscribe?: readonly string[];
  readonly publish?: readonly string[];
  readonly role?: string;
  readonly capabilities?: readonly string[];
  readonly space?: string;
};

/** A minted credential: its file's text, and what connects with it. */
export type Minted = { readonly text: string } & Credential;

export type CallOptions = {
  readonly space?: string;
  readonly as?: Credential;
  readonly deadlineMs?: number;
  /** Left out: the delivery service for what it reads, the provisioner for everything else. */
  readonly endpoint?: EndpointName;
};

export type TestSpace = {
  readonly state: string;
  readonly url: string;
  readonly broker: TestBroker;
  readonly spaces: readonly string[];
  /** The operator's own credential of a space. */
  readonly operator: (space?: string) => Credential;
  readonly mint: (options: MintOptions) => Promise<Minted>;
  /** Calls an endpoint, as the operator unless told otherwise. */
  readonly call: (command: string, args: unknown, options?: CallOptions) => Promise<unknown>;
  /** A plain connection with this credential; closed at `stop`. */
  readonly connect: (credential: Credential) => Promise<NatsConnection>;
  readonly open: (credential: Credential) => Promise<Connection>;
  /** An open space's connection: no credential, a lifecycle of its own. */
  readonly connectOpen: () => Promise<NatsConnection>;
  /** Everything of the store account, for looking: a test's own user, unlike any profile. */
  readonly store: (space?: string) => Promise<NatsConnection>;
  /** The same, for a test that ends it. */
  readonly openStore: (space?: string) => Promise<Connection>;
  /** Adds a space to the running broker; resolves once it is served. */
  readonly addSpace: (space: string) => Promise<void>;
  /** Runs the trust program; its answer as an object. */
  readonly trust: (command: string, ...args: readonly string[]) => Promise<Record<string, unknown>>;
  readonly provisioner: {
    /** Resolves once it serves. */
    readonly ready: () => Promise<void>;
    readonly kill: (signal?: NodeJS.Signals) => Promise<void>;
    readonly restart: () => Promise<void>;
    readonly pid: () => number;
    readonly log: () => string;
  };
  /** Another process of the provisioner, beside the one that is there; resolves once it serves. */
  readonly anotherProvisioner: (env?: Readonly<Record<string, string>>) => Promise<Another>;
  readonly delivery: DeliveryService | undefined;
  /** Told of a bearer that was handed out, to look its row up when the space ends. */
  readonly issued: (bearer: string, space: string) => void;
  readonly stop: () => Promise<void>;
};

export type Another = { readonly kill: (signal?: NodeJS.Signals) => Promise<void>; readonly log: () => string };

export async function startSpace(options: SpaceOptions = {}): Promise<TestSpace> {
  const { auth = "static", spaces = ["main"] } = options;
  const state = mkdtempSync(join(tmpdir(), "cotal-space-"));
  const trust = (command: string, ...args: readonly string[]) => runTrust(state, command, args);
  const broker =
    auth === "open"
      ? await startBroker()
      : await startBroker({ configFile: async (port) => brokerConfig(trust, port) });
  const audits = new Map<string, IssuedAudit>();
  const addTrust = async (space: string): Promise<void> => {
    await trust("space", "--space", space, "--server", broker.url, "--auth", auth);
    audits.set(space, await auditIssues(state, broker.url, space));
  };
  if (auth !== "open") for (const space of spaces) await addTrust(space);

  const opened: Connection[] = [];
  const open = async (credential: Credential): Promise<Connection> => {
    const connection = await openConnection({
      servers: [broker.url],
      authenticator: { jwt: () => credential.jwt, sign: credential.sign },
      inboxPrefix: inboxPrefix(credential.view.uid, credential.view.inboxNonce),
      name: "test",
      reconnect: { kind: "endless" },
    });
    opened.push(connection);
    return connection;
  };
  const connect = async (credential: Credential): Promise<NatsConnection> => (await open(credential)).nc;
  const openPlain = async (): Promise<Connection> => {
    const connection = await openConnection({
      servers: [broker.url],
      inboxPrefix: inboxPrefix(drawLifecycleUid(randomBytes), drawNonce(randomBytes)),
      name: "test",
      reconnect: { kind: "endless" },
    });
    opened.push(connection);
    return connection;
  };

  let child: { process: ChildProcess; log: () => string };
  let becoming = Promise.resolve();
  const startProvisioner = async (): Promise<void> => {
    child = startDaemon(state, broker.url, options);
    becoming = ready(child.process, child.log);
    becoming.catch(() => undefined);
    // Where people sign in it serves once the auth service does, which needs the stores and the settings.
    if (auth !== "user") return becoming;
    for (const space of spaces) await settled(space);
  };
  const settled = async (space: string): Promise<void> => {
    const { channels } = spaceNames(space).bucket;
    const { nc, close } = await openStore(space);
    await served(async () => {
      const row = await leaderLast(nc, bucketStream(channels), kvKey(channels, SPACE_KEY)).catch(() => undefined);
      if (row === undefined) throw new Error("not yet");
    });
    await close();
  };
  const end = (signal: NodeJS.Signals): Promise<void> => endProcess(child.process, signal);
  const others: ChildProcess[] = [];
  const paths = trustPaths(state);
  const operator = (space = spaces[0] ?? "main"): Credential => readCredsFile(paths.operatorCreds(space));
  const callers = new Map<string, Promise<Connection>>();
  /** One caller for each connection and space: each keeps a subscription, and a credential has so many. */
  const asking = new Map<string, Call>();
  const call: TestSpace["call"] = async (
    command,
    args,
    { space = spaces[0] ?? "main", as, deadlineMs = 25_000, endpoint = servedBy(command) } = {},
  ) => {
    const credential = auth === "open" ? undefined : (as ?? operator(space));
    const key = credential?.jwt ?? space;
    const pending = callers.get(key) ?? (credential === undefined ? openPlain() : open(credential));
    callers.set(key, pending);
    const connection = await pending;
    const caller = credential?.view ?? {
      principal: principal(OPEN_OWNER, "tester"),
      uid: drawLifecycleUid(randomBytes),
    };
    const ask =
      asking.get(`${space} ${key}`) ??
      createCaller({
        nc: connection.nc,
        space,
        caller: { principal: caller.principal, uid: caller.uid },
        name: "test",
        inboxPrefix: connection.inboxPrefix,
        denials: watchDenials(connection.nc),
        random: randomBytes,
      });
    asking.set(`${space} ${key}`, ask);
    return (await ask(endpoint, command, args, { deadlineMs })).data;
  };

  const openStore = async (space = spaces[0] ?? "main"): Promise<Connection> => {
    if (auth === "open") return openPlain();
    const connection = await lookInto(state, broker.url, space);
    opened.push(connection);
    return connection;
  };

  const started = startProvisioner();
  const order = { state, url: broker.url, ...(auth === "open" ? { open: spaces } : {}) };
  const delivery = options.delivery === false ? undefined : spawnDelivery(order);
  await started;
  // Where people sign in it serves once the auth service does.
  if (auth !== "user") await delivery?.ready();
  return {
    state,
    url: broker.url,
    broker,
    spaces,
    operator,
    mint: async ({ actor, owner = "acme", name = actor, profile = "agent", space, ...lists }) => {
      const { subscribe, publish, role, capabilities } = lists;
      const key = newKey("user");
      const data = await call(
        "mint",
        {
          profile,
          owner,
          actor,
          name,
          userKey: key.publicKey,
          ...(subscribe === undefined ? {} : { allowSubscribe: subscribe }),
          ...(publish === undefined ? {} : { allowPublish: publish }),
          ...(role === undefined ? {} : { role }),
          ...(capabilities === undefined ? {} : { capabilities }),
        },
        space === undefined ? {} : { space },
      );
      const text = formatCreds(MintAnswer.parse(data).jwt, key);
      return { text, ...parseCreds(text) };
    },
    call,
    connect,
    open,
    connectOpen: async () => (await openPlain()).nc,
    store: async (space) => (await openStore(space)).nc,
    openStore,
    addSpace: async (space) => {
      await addTrust(space);
      await served(() => call("space", {}, { space, deadlineMs: 1000 }));
      if (delivery !== undefined) await served(() => call("channels", {}, { space, deadlineMs: 1000 }));
    },
    trust,
    provisioner: {
      ready: () => becoming,
      kill: (signal = "SIGKILL") => end(signal),
      restart: startProvisioner,
      pid: () => child.process.pid ?? 0,
      log: () => child.log(),
    },
    anotherProvisioner: async (env = {}) => {
      const another = startDaemon(state, broker.url, { ...options, env: { ...options.env, ...env } });
      others.push(another.process);
      await ready(another.process, another.log);
      return { kill: (signal = "SIGKILL") => endProcess(another.process, signal), log: another.log };
    },
    delivery,
    issued: (bearer, space) => audits.get(space)?.bearer(bearer),
    stop: async () => {
      await Promise.all(opened.map((connection) => connection.close()));
      await Promise.all([...audits.values()].map((audit) => audit.end()));
      const daemons = others.map((one) => endProcess(one, "SIGTERM"));
      await Promise.all([end("SIGTERM"), delivery?.kill("SIGTERM"), ...daemons]);
      await broker.stop();
      keepState(state);
      rmSync(state, { recursive: true, force: true, maxRetries: 3 });
    },
  };
}

/** The daemon that serves a command of ours, of the two that this file calls. */
export const servedBy = (command: string): EndpointName =>
  Object.values<string>(ReadCommand).includes(command) ? EndpointName.Delivery : EndpointName.Provisioner;

async function runTrust(state: string, command: string, args: readonly string[]): Promise<Record<string, unknown>> {
  const program = join(ROOT, "services", "trust", "main.ts");
  const { stdout } = await run(process.execPath, [program, command, "--state", state, ...args]);
  return JSON.parse(stdout.trim().split("\n").at(-1) ?? "{}") as Record<string, unknown>;
}

async function brokerConfig(trust: TestSpace["trust"], port: number): Promise<string> {
  const ports = ["--port", String(port)];
  return String((await trust("init", "--host", "127.0.0.1", ...ports))["config"]);
}

function startDaemon(state: string, url: string, { auth, spaces = ["main"], env = {} }: SpaceOptions) {
  const lines: string[] = [];
  const daemon = spawn(process.execPath, [join(ROOT, "services", "provisioner", "main.ts")], {
    env: {
      ...process.env,
      COTAL_SERVERS: url,
      COTAL_SPACES: auth === "open" ? spaces.join(",") : "*",
      COTAL_PROVISIONER_KEYS: join(state, "spaces", "{space}", "provisioner"),
      COTAL_BROKER: auth === "open" ? "open" : "accounts",
      COTAL_PARENT_IPC: "true",
      ...env,
    },
    stdio: ["ignore", "pipe", "pipe", "ipc"],
  });
  for (const stream of [daemon.stdout, daemon.stderr]) {
    stream?.on("data", (chunk: Buffer) => {
      lines.push(chunk.toString());
      printed("provisioner", chunk.toString());
      if (lines.length > 2000) lines.shift();
    });
  }
  return { process: daemon as ChildProcess, log: () => lines.join("") };
}

function ready(child: ChildProcess, log: () => string): Promise<void> {
  return new Promise((resolve, reject) => {
    child.on("message", (message: { kind?: string }) => {
      if (message.kind === "ready") resolve();
    });
    child.once("exit", (code) => reject(new Error(`the provisioner ended with ${code}:\n${log()}`)));
  });
}

async function endProcess(running: ChildProcess, signal: NodeJS.Signals): Promise<void> {
  if (running.exitCode !== null || running.signalCode !== null) return;
  const ended = new Promise((resolve) => running.once("exit", resolve));
  running.kill(signal);
  await ended;
}

/** Repeats until it succeeds; the test's own deadline bounds it. */
async function served(ask: () => Promise<unknown>): Promise<void> {
  for (;;) {
    try {
      await ask();
      return;
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}
