/**
 * The trust program: one short-lived process that alone reads the operator key and the
 * system-account administrator. `cotal up`, `space add` and `deprovision` run it, and so does the
 * initialiser of a container deployment.
 *
 * ```
 * init   --state DIR --host H --port N [--monitor N] [--open]   trust and the broker's configuration
 * space  --state DIR --space S --server URL [--auth M]        accounts, keys, operator credential
 *        [--disk-bytes N] [--connections N]                   limits of the accounts, kept
 * revoke --state DIR --space S --server URL --users U,U       refuse these users; prove them gone
 * servers --state DIR --server URL                            every server's limits
 * backup --state DIR --space S --folder DIR                   owner secret and a reader's credential
 * restore --state DIR --space S --server URL --folder DIR --auth M --digest D   keys anew, a restorer's credential
 * rotate --state DIR --space S --server URL                   new signing keys, beside the former ones
 * finish-rotation --state DIR --space S --server URL          the former ones count no more
 * restored --state DIR --space S --server URL --auth M        it is filled and proved: publish it
 * ```
 *
 * Prints one JSON object a line; exit 0 done, 1 refused, 3 unreachable. Safe to run again, and two
 * that change something run one after the other.
 */
import { existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { CotalError, ErrorCode, badRequest, toCotalError } from "../../shared/protocol/base/errors.ts";
import { spaceToken } from "../../shared/protocol/base/subjects.ts";
import { USER_NKEY } from "../../shared/protocol/base/grammar.ts";
import { spaceAccounts } from "../../shared/trust/accounts.ts";
import { trustPaths } from "../../shared/trust/folder.ts";
import { keptAuthMode } from "../../shared/trust/space-file.ts";
import { ensureBrokerTrust, systemCredential } from "./broker-trust.ts";
import { serverConfigText } from "./server-config.ts";
import { type AuthTrust, ensureAuthTrust, hasAuthTrust, publishAuth } from "./auth-trust.ts";
import { ensureDeliveryTrust, ensureSystemCredentials, publishDelivery } from "./delivery-trust.ts";
import { accountLimits, setAccountLimits } from "./account-limits.ts";
import { assertWhole, beginRestore, endRestore, handOver, keeperCredential } from "./keepers.ts";
import { changingTrust } from "./lock.ts";
import { finishRotation, rotateSigners, rotatingSigners } from "./rotation.ts";
import { sweepTrust } from "./sweep.ts";
import { addRevoked, ensureOperatorCredential, ensureSpaceTrust, publishSpace, refusedUsers } from "./space-trust.ts";
import {
  LOOKING_ATTEMPTS,
  assertServers,
  connectSystem,
  connectedUsers,
  pushAccount,
  serverFacts,
} from "./system-account.ts";

const MAX_PAYLOAD = 1_048_576;
const EVICTION_WAIT_MS = 10_000;

type Options = Readonly<Record<string, string | boolean | undefined>>;

const COMMANDS: Readonly<Record<string, (options: Options) => Promise<object>>> = {
  init: (options) => changing(options, init),
  space: (options) => changing(options, space),
  revoke: (options) => changing(options, revoke),
  backup: (options) => changing(options, backup),
  restore: (options) => changing(options, restore),
  restored: (options) => changing(options, restored),
  rotate: (options) => changing(options, rotate),
  "finish-rotation": (options) => changing(options, finishing),
  servers,
};

/** Runs a command that changes what lies in the state folder. */
function changing(options: Options, run: (options: Options) => Promise<object>): Promise<object> {
  const state = required(options, "state");
  return changingTrust(state, () => {
    sweepTrust(state);
    return run(options);
  });
}

async function init(options: Options): Promise<object> {
  const state = required(options, "state");
  const folder = join(state, "broker");
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const trust = options["open"] === true ? undefined : await ensureBrokerTrust(state);
  const config = join(folder, "nats-server.conf");
  const text = serverConfigText({
    host: required(options, "host"),
    port: Number(required(options, "port")),
    ...(options["monitor"] === undefined ? {} : { monitorPort: Number(options["monitor"]) }),
    storeDir: join(folder, "store"),
    resolverDir: join(folder, "accounts"),
    pidFile: join(folder, "nats-server.pid"),
    maxPayload: MAX_PAYLOAD,
    ...(trust === undefined
      ? {}
      : {
          trust: {
            operatorJwt: trust.operatorJwt,
            systemAccount: trust.system.publicKey,
            systemJwt: trust.systemJwt,
          },
        }),
  });
  writeFileSync(config, text, { mode: 0o600 });
  return { kind: "broker-config", config };
}

async function space(options: Options): Promise<object> {
  const state = required(options, "state");
  const name = spaceToken(required(options, "space"));
  const trust = await ensureBrokerTrust(state);
  const now = nowSeconds();
  const connection = await connectSystem(required(options, "server"), await systemCredential(trust, now));
  try {
    await assertServers(connection);
    assertWhole(state, name);
    const own = ensureSpaceTrust(state, name);
    setAccountLimits(state, name, {
      diskBytes: text(options["disk-bytes"]),
      connections: text(options["connections"]),
    });
    const auth = authMode(options["auth"], keptAuthMode(state, name));
    if (auth === "user") ensureAuthTrust(state, own);
    ensureDeliveryTrust(state, own);
    await pushSpace(state, name, connection);
    await ensureOperatorCredential(state, own, auth, now);
    await ensureSystemCredentials(state, own, trust, auth, now);
    if (hasAuthTrust(state, name)) publishAuth(state, own, now);
    publishDelivery(state, own, auth);
    publishSpace(state, own, auth);
    return { kind: "space-trust", space: name };
  } finally {
    await connection.drain();
  }
}

/** New signing keys; what is signed by the former ones goes on until the rotation is finished. */
async function rotate(options: Options): Promise<object> {
  return pushing(options, async ({ state, name, trust, push }) => {
    const now = nowSeconds();
    const keys = await rotateSigners(state, name, now, push);
    const own = ensureSpaceTrust(state, name);
    const auth = authMode(undefined, keptAuthMode(state, name));
    // Made anew with the new keys: they would end with the former ones.
    const { operatorCreds, sentinel } = trustPaths(state);
    for (const path of [operatorCreds(name), sentinel(name)]) rmSync(path, { force: true });
    await ensureOperatorCredential(state, own, auth, now);
    await ensureSystemCredentials(state, own, trust, auth, now);
    if (hasAuthTrust(state, name)) publishAuth(state, own, now);
    return { kind: "rotated", space: name, keys };
  });
}

async function finishing(options: Options): Promise<object> {
  return pushing(options, async ({ state, name, push }) => ({
    kind: "rotation-finished",
    space: name,
    ...(await finishRotation(state, name, nowSeconds(), push)),
  }));
}

type Pushing = {
  readonly state: string;
  readonly name: string;
  readonly trust: Awaited<ReturnType<typeof ensureBrokerTrust>>;
  readonly push: () => Promise<void>;
};

/** For a change of the accounts of a space that is there. */
async function pushing(options: Options, run: (given: Pushing) => Promise<object>): Promise<object> {
  const state = required(options, "state");
  const name = spaceToken(required(options, "space"));
  assertTrust(state, name);
  assertWhole(state, name);
  const trust = await ensureBrokerTrust(state);
  const connection = await connectSystem(required(options, "server"), await systemCredential(trust, nowSeconds()));
  try {
    await assertServers(connection);
    return await run({ state, name, trust, push: () => pushSpace(state, name, connection) });
  } finally {
    await connection.drain();
  }
}

/** Nothing of the broker is changed or asked. */
async function backup(options: Options): Promise<object> {
  const state = required(options, "state");
  const name = spaceToken(required(options, "space"));
  assertTrust(state, name);
  assertWhole(state, name);
  const own = ensureSpaceTrust(state, name);
  handOver(state, own, required(options, "folder"));
  const auth = authMode(undefined, keptAuthMode(state, name));
  return { kind: "backup-trust", space: name, ...(await keeperCredential(state, own, auth, "backup", nowSeconds())) };
}

/** Keys and accounts of a space that is about to be filled; what an earlier restore has made is kept. */
async function restore(options: Options): Promise<object> {
  const state = required(options, "state");
  const name = spaceToken(required(options, "space"));
  const auth = authMode(options["auth"], keptAuthMode(state, name));
  const { phase } = beginRestore(state, name, required(options, "folder"), required(options, "digest"));
  if (phase === "proved") return { kind: "restore-trust", space: name, phase };
  const trust = await ensureBrokerTrust(state);
  const now = nowSeconds();
  const connection = await connectSystem(required(options, "server"), await systemCredential(trust, now));
  try {
    await assertServers(connection);
    const own = ensureSpaceTrust(state, name);
    if (auth === "user") ensureAuthTrust(state, own);
    await pushSpace(state, name, connection);
    const credential = await keeperCredential(state, own, auth, "restore", now);
    return { kind: "restore-trust", space: name, phase, ...credential };
  } finally {
    await connection.drain();
  }
}

/** Refuses the restorer from here on, and gives the space to its daemons. */
async function restored(options: Options): Promise<object> {
  const state = required(options, "state");
  const name = spaceToken(required(options, "space"));
  addRevoked(state, name, endRestore(state, name), nowSeconds());
  return space(options);
}

async function revoke(options: Options): Promise<object> {
  const state = required(options, "state");
  const name = spaceToken(required(options, "space"));
  const users = required(options, "users").split(",").map(userKey);
  assertTrust(state, name);
  const trust = await ensureBrokerTrust(state);
  const now = nowSeconds();
  addRevoked(state, name, users, now);
  const connection = await connectSystem(required(options, "server"), await systemCredential(trust, now));
  try {
    await pushSpace(state, name, connection);
    const deadline = Date.now() + EVICTION_WAIT_MS;
    let live = await connectedUsers(connection, users);
    while (live > 0 && Date.now() < deadline) {
      await new Promise((resolve) => setTimeout(resolve, 250));
      live = await connectedUsers(connection, users);
    }
    if (live > 0) {
      throw new CotalError(ErrorCode.FailedPrecondition, `${live} revoked connections are still open`, {
        next: "run the same command again; if it stays so, restart the broker",
      });
    }
    return { kind: "revoked", space: name, users: users.length };
  } finally {
    await connection.drain();
  }
}

/** Whoever ends a credential must hold the trust it was made under; making another here would help nobody. */
function assertTrust(state: string, name: string): void {
  const { operatorKey, spaceTrust } = trustPaths(state);
  if (existsSync(operatorKey) && existsSync(spaceTrust(name))) return;
  throw new CotalError(ErrorCode.FailedPrecondition, `${state} does not hold the trust of space ${name}`, {
    next: "run it where the space was made, with that state folder",
  });
}

/** One user's key and nothing else: `*`, for example, would refuse everybody of the account. */
function userKey(text: string): string {
  if (USER_NKEY.test(text)) return text;
  throw badRequest(`${JSON.stringify(text.slice(0, 80))} is no user key`, "give the public keys that were minted for");
}

async function servers(options: Options): Promise<object> {
  const trust = await ensureBrokerTrust(required(options, "state"));
  const credential = await systemCredential(trust, nowSeconds());
  const connection = await connectSystem(required(options, "server"), credential, LOOKING_ATTEMPTS);
  try {
    const { servers: facts, gap } = await serverFacts(connection);
    return { kind: "servers", servers: facts, ...(gap === undefined ? {} : { gap }) };
  } finally {
    await connection.drain();
  }
}

async function pushSpace(state: string, name: string, connection: Parameters<typeof pushAccount>[0]): Promise<void> {
  const trust = await ensureBrokerTrust(state);
  const own = ensureSpaceTrust(state, name);
  const { keys } = own;
  const accounts = await spaceAccounts(trust.operator, name, keys, {
    ...accountLimits(state, name),
    system: trust.system.publicKey,
    ...signersOf(
      ensureDeliveryTrust(state, own),
      hasAuthTrust(state, name) ? ensureAuthTrust(state, own) : undefined,
      rotatingSigners(state, name),
    ),
    revoked: refusedUsers(state, name, nowSeconds()),
  });
  await pushAccount(connection, keys.store.publicKey, accounts.store);
  await pushAccount(connection, keys.front.publicKey, accounts.front);
  await pushAccount(connection, keys.auth.publicKey, accounts.auth);
}

/** Each daemon signs with keys of its own. */
function signersOf(
  delivery: ReturnType<typeof ensureDeliveryTrust>,
  auth: AuthTrust | undefined,
  rotating: ReturnType<typeof rotatingSigners>,
) {
  const all = (account: "front" | "store") => [
    ...(auth?.moreSigners[account] ?? []),
    ...delivery.moreSigners[account],
    ...rotating[account],
  ];
  const moreSigners = { front: all("front"), store: all("store") };
  if (auth === undefined) return { moreSigners };
  const signers = [...(auth.callout.signers ?? []), ...rotating.auth];
  return { moreSigners, callout: { ...auth.callout, signers } };
}

function text(option: string | boolean | undefined): string | undefined {
  return typeof option === "string" ? option : undefined;
}

/** What is asked for, or what the space has; a space keeps the mode it was made with. */
function authMode(asked: unknown, kept: "static" | "user" | undefined): "static" | "user" {
  if (asked !== undefined && asked !== "static" && asked !== "user") {
    throw badRequest(`--auth ${JSON.stringify(asked)} is unknown`, "use static or user");
  }
  if (asked === undefined || kept === undefined || asked === kept) return kept ?? asked ?? "user";
  throw new CotalError(ErrorCode.FailedPrecondition, `the space was made ${kept}, and stays so`, {
    next: `leave --auth out, or make another space with --auth ${asked}`,
  });
}

function required(options: Options, name: string): string {
  const value = options[name];
  if (typeof value !== "string" || value === "") throw badRequest(`--${name} is missing`);
  return value;
}

function nowSeconds(): number {
  return Math.floor(Date.now() / 1000);
}

async function main(): Promise<number> {
  const [command = "", ...rest] = process.argv.slice(2);
  try {
    const run = COMMANDS[command];
    if (run === undefined)
      throw badRequest(`unknown command ${JSON.stringify(command)}`, `use one of ${Object.keys(COMMANDS).join(", ")}`);
    const string = { type: "string" } as const;
    const { values } = parseArgs({
      args: rest,
      options: {
        state: string,
        space: string,
        server: string,
        host: string,
        port: string,
        monitor: string,
        users: string,
        folder: string,
        digest: string,
        auth: string,
        "disk-bytes": string,
        connections: string,
        open: { type: "boolean" },
      },
    });
    process.stdout.write(`${JSON.stringify(await run(values))}\n`);
    return 0;
  } catch (thrown) {
    const error = toCotalError(thrown);
    process.stdout.write(
      `${JSON.stringify({ kind: "error", code: error.code, message: error.message, next: error.next })}\n`,
    );
    return error.code === ErrorCode.Unavailable || error.code === ErrorCode.DeadlineExceeded ? 3 : 1;
  }
}

// A dial that was given up before the broker said a word keeps its socket (nats.js), and this program with it.
process.exit(await main());
