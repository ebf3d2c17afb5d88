/**
 * The initialiser of a container deployment: one-shot, run at every `docker compose up`, changes nothing that
 * is there.
 *
 * ```
 * broker                 before the broker: its trust, and the files that its configuration includes
 * spaces SPACE...        once it runs: accounts and keys of these spaces, each daemon's where that daemon mounts it
 * folders SPACE...       before a restore of these spaces: where their keys will lie, and nothing in it
 *   --root DIR           the places below lie under it (default: /)
 * ```
 *
 * ```
 * /state             operator and identity keys: mounted here and nowhere else
 * /broker/trust      what the broker includes; a secret in it only of a cluster, whose brokers share it
 * /keys/<daemon>/<space>   one volume for each daemon, which mounts it read-only as /keys/<space>
 * /desk              the state folder of whoever operates: credential, sentinel, the exchange and its capability
 * ```
 *
 * Invariants
 * 1. The trust program alone reads and draws keys, as a process of its own; here folders are laid out.
 * 2. A folder of a space is linked to its volume before anything is written into it.
 * 3. One run at a time on one state, in whichever containers they are: folders are swept and laid out by it alone.
 * 4. What is there and is not what it should be is refused by name: never made anew, never passed on.
 */
import { spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, lstatSync, mkdirSync, readFileSync, readlinkSync, symlinkSync } from "node:fs";
import { dirname, join } from "node:path";
import { parseArgs } from "node:util";
import { CotalError, ErrorCode, Outcome, badRequest, toCotalError } from "../../shared/protocol/base/errors.ts";
import { spaceToken } from "../../shared/protocol/base/subjects.ts";
import { kept, keptSecret, trustPaths, writePrivate } from "../../shared/trust/folder.ts";
import { DEV_ISSUER_FILES, keptDevIssuer } from "../../shared/trust/dev-issuer.ts";
import { jsonObject } from "../../shared/trust/nats-jwt.ts";
import { sweepStaged } from "../../shared/trust/staged.ts";
import { changingTrust, layingOut } from "./lock.ts";
import { operatorConfigText } from "./server-config.ts";

const { values, positionals } = parseArgs({
  options: { root: { type: "string", default: "/" } },
  allowPositionals: true,
});
const under = (...path: readonly string[]): string => join(values.root, ...path);
const PLACE = {
  state: under("state"),
  broker: under("broker", "trust"),
  keys: under("keys"),
  desk: under("desk"),
} as const;
/** Where the loopback exchange of the first space is published; of each further one, the next port. */
const FACE_PORT = 7480;
const SERVER = process.env["COTAL_SERVERS"] ?? "nats://broker:4222";

const state = trustPaths(PLACE.state);
const desk = trustPaths(PLACE.desk);
const FACE_CAPABILITY = "face.capability";

/**
 * What a run that was killed left of the files that only this program writes, and the trust program that it runs: no other
 * is at work now, and none that such a run has left behind.
 */
async function sweep(names: readonly string[]): Promise<void> {
  const all = (): boolean => true;
  await changingTrust(PLACE.state, () => {
    for (const folder of [PLACE.broker, join(PLACE.desk, "run")]) sweepStaged(folder, all);
    for (const name of names) {
      sweepStaged(desk.space(name), all);
      sweepStaged(join(PLACE.keys, "auth", name), (file) => file === FACE_CAPABILITY || DEV_ISSUER_FILES.has(file));
    }
  });
}

async function broker(): Promise<void> {
  await sweep([]);
  trust("init", "--host", "0.0.0.0", "--port", "4222");
  const [operatorJwt, systemJwt] = [state.operatorJwt, state.systemJwt].map((path) =>
    readFileSync(path, "utf8").trim(),
  );
  if (operatorJwt === undefined || systemJwt === undefined)
    throw new CotalError(ErrorCode.Internal, "no trust was made");
  const systemAccount = String(jsonObject(systemJwt.split(".")[1] ?? "")?.["sub"]);
  writePrivate(join(PLACE.broker, "operator.conf"), operatorConfigText({ operatorJwt, systemAccount, systemJwt }));
  const brokers = (process.env["COTAL_BROKERS"] ?? "").split(",").filter((name) => name !== "");
  if (brokers.length > 1) writePrivate(join(PLACE.broker, "cluster.conf"), clusterText(brokers));
}

/** What the brokers of a cluster know of each other. Whoever is a route is believed everything: it needs a secret. */
function clusterText(brokers: readonly string[]): string {
  const secret = keptSecret(join(state.root, "route.secret")).toString("hex");
  const routes = brokers.map((name) => JSON.stringify(`nats://route:${secret}@${name}:6222`));
  return [
    "name: cotal",
    'listen: "0.0.0.0:6222"',
    `authorization { user: route, password: ${JSON.stringify(secret)}, timeout: 2 }`,
    `routes: [${routes.join(", ")}]`,
    "",
  ].join("\n");
}

async function spaces(names: readonly string[]): Promise<void> {
  if (names.length === 0) throw badRequest("no space is named", "set COTAL_SPACES, for example to main");
  const tokens = names.map((text) => spaceToken(text.trim()));
  await sweep(tokens);
  for (const [n, name] of tokens.entries()) space(name, FACE_PORT + n);
}

function folders(name: string): void {
  link(state.provisioner(name), join(PLACE.keys, "provisioner", name));
  link(state.auth(name), join(PLACE.keys, "auth", name));
  link(state.delivery(name), join(PLACE.keys, "delivery", name));
  link(dirname(state.operatorCreds(name)), dirname(desk.operatorCreds(name)));
}

function space(name: string, port: number): void {
  folders(name);
  trust("space", "--space", name, "--server", SERVER.split(",")[0] ?? "");
  if (!existsSync(state.sentinel(name))) return;
  const capability = kept(
    join(PLACE.keys, "auth", name, FACE_CAPABILITY),
    () => randomBytes(32).toString("base64url"),
    lawfulCapability,
  );
  // The auth service mounts its folder read-only.
  if (process.env["COTAL_AUTH_DEV_ISSUER"] === "true") keptDevIssuer(state.auth(name));
  const face = { url: `http://127.0.0.1:${port}`, capability };
  writePrivate(join(PLACE.desk, "run", `exchange-${name}.json`), JSON.stringify(face));
}

function lawfulCapability(text: string): string {
  if (!/^[A-Za-z0-9_-]{43}$/.test(text)) throw new TypeError("malformed");
  return text;
}

/** What is written at `path` lies in `target`, which is another volume: a folder there instead would reach no daemon. */
function link(path: string, target: string): void {
  mkdirSync(target, { recursive: true, mode: 0o700 });
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  const found = lstatSync(path, { throwIfNoEntry: false });
  if (found === undefined) symlinkSync(target, path);
  else if (!found.isSymbolicLink() || readlinkSync(path) !== target) {
    throw new CotalError(ErrorCode.FailedPrecondition, `${path} is no link to ${target}`, {
      outcome: Outcome.NotExecuted,
      next: `move what it holds into ${target}, remove ${path}, and run this again`,
    });
  }
}

/** One run of the trust program, whose answer is passed on. */
function trust(...args: readonly string[]): void {
  const program = join(import.meta.dirname, "main.ts");
  const [command = "", ...rest] = args;
  const { status } = spawnSync(process.execPath, [program, command, "--state", PLACE.state, ...rest], {
    stdio: ["ignore", "inherit", "inherit"],
  });
  if (status !== 0) process.exit(status ?? 1);
}

const [what = "", ...names] = positionals;
const COMMANDS: Readonly<Record<string, () => Promise<void> | void>> = {
  broker,
  spaces: () => spaces(names.flatMap((list) => list.split(","))),
  folders: () => names.map(spaceToken).forEach(folders),
};
try {
  const run = COMMANDS[what];
  if (run === undefined) throw badRequest(`unknown command ${JSON.stringify(what)}`, "use broker, spaces or folders");
  await layingOut(PLACE.state, run);
} catch (thrown) {
  const { code, message, next } = toCotalError(thrown);
  process.stdout.write(`${JSON.stringify({ kind: "error", code, message, next })}\n`);
  process.exitCode = 1;
}
