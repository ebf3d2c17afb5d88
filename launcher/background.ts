/**
 * `cotal up --detach`: the launcher as a process of its own that outlives the terminal.
 *
 * Both halves are here. The parent starts this file, hears over IPC what happens until the plane is
 * ready, and lets go. Invariant: a parent that goes away before that ends the start, so a broken
 * start never leaves a plane that nobody knows of.
 */
import { spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { CotalError, ErrorCode, isErrorCode, toCotalError } from "../shared/protocol/base/errors.ts";
import type { AuthMode } from "../shared/protocol/chat/space-settings.ts";
import { childEnv } from "./child-env.ts";
import type { PlaneEvent, PlaneFacts, Report } from "./events.ts";
import { openLogFile } from "./log-file.ts";
import { runPlane } from "./run-plane.ts";
import { planePaths, prepareState } from "./state-folder.ts";

type Order = {
  readonly state: string;
  readonly space: string;
  readonly port?: number | undefined;
  readonly auth?: AuthMode | undefined;
};

type Told =
  | { readonly kind: "event"; readonly event: PlaneEvent }
  | { readonly kind: "ready"; readonly facts: PlaneFacts }
  | { readonly kind: "failed"; readonly code: string; readonly message: string; readonly next: string | undefined };

/** Starts a plane in the background; settles when it is ready. */
export async function startInBackground(order: Order, report: Report): Promise<PlaneFacts> {
  prepareState(order.state);
  const faults = openSync(planePaths(order.state).log("launcher-faults"), "w", 0o600);
  const child = spawn(process.execPath, [import.meta.filename, JSON.stringify(order)], {
    stdio: ["ignore", "ignore", faults, "ipc"],
    detached: true,
    env: childEnv(passedOn()),
  });
  closeSync(faults);
  return new Promise((resolve, reject) => {
    child.once("error", (cause) =>
      reject(new CotalError(ErrorCode.Internal, "the background launcher can't be started", { cause })),
    );
    child.once("exit", (code) =>
      reject(
        new CotalError(ErrorCode.Internal, `the background launcher ended with ${code ?? "a signal"}`, {
          next: `read ${planePaths(order.state).log("launcher-faults")}`,
        }),
      ),
    );
    child.on("message", (told: Told) => {
      if (told.kind === "event") return report(told.event);
      if (told.kind === "failed") {
        const { code, message, next } = told;
        const options = next === undefined ? {} : { next };
        return reject(new CotalError(isErrorCode(code) ? code : ErrorCode.Internal, message, options));
      }
      child.removeAllListeners("exit");
      child.send("go", () => {
        child.disconnect();
        child.unref();
        resolve(told.facts);
      });
    });
  });
}

/** The two variables of ours that a launcher reads; `childEnv` keeps all others out. */
function passedOn(): Record<string, string> {
  const binary = process.env["NATS_SERVER_BIN"];
  return binary === undefined ? {} : { NATS_SERVER_BIN: binary };
}

/** The background half. */
async function main(order: Order): Promise<void> {
  const log = openLogFile(planePaths(order.state).log("launcher"));
  const write = (entry: object): void =>
    log.write(Buffer.from(`${JSON.stringify({ time: new Date().toISOString(), ...entry })}\n`));
  const tell = (told: Told): void => {
    if (process.connected) process.send?.(told, undefined, {}, () => undefined);
  };
  const alone = new AbortController();
  let isReady = false;
  process.once("message", () => {
    isReady = true;
  });
  process.once("disconnect", () => {
    if (!isReady) alone.abort();
  });
  try {
    await runPlane({
      ...order,
      until: alone.signal,
      report: (event) => {
        write(event);
        tell({ kind: "event", event });
      },
      ready: (facts) => {
        write({ kind: "ready", ...facts });
        tell({ kind: "ready", facts });
      },
    });
    write({ kind: "stopped" });
  } catch (thrown) {
    const { code, message, next } = toCotalError(thrown);
    write({ kind: "error", code, message, next });
    tell({ kind: "failed", code, message, next });
    process.exitCode = 1;
  } finally {
    log.close();
    if (process.connected) process.disconnect();
  }
}

if (import.meta.main) await main(JSON.parse(process.argv[2] ?? "{}") as Order);
