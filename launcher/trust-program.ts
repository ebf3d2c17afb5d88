/**
 * Runs the trust program: the only thing that reads operator keys (architecture §4).
 *
 * Invariant: no secret goes into its arguments, and none comes back; its answer is one JSON line.
 */
import { spawn } from "node:child_process";
import { join } from "node:path";
import { z } from "zod";
import { CotalError, ErrorCode, isErrorCode } from "../shared/protocol/base/errors.ts";
import { childEnv } from "./child-env.ts";
import { parseJson } from "./state-folder.ts";

const PROGRAM = join(import.meta.dirname, "..", "services", "trust", "main.ts");
const TIMEOUT_MS = 30_000;
const MAX_OUTPUT = 1024 * 1024;

const Refusal = z.looseObject({
  kind: z.literal("error"),
  code: z.string(),
  message: z.string(),
  next: z.string().optional(),
});

export const TrustCommand = {
  Init: "init",
  Space: "space",
  Revoke: "revoke",
  Servers: "servers",
  Backup: "backup",
  Restore: "restore",
  Restored: "restored",
  Rotate: "rotate",
  FinishRotation: "finish-rotation",
} as const;
export type TrustCommand = (typeof TrustCommand)[keyof typeof TrustCommand];

/** One run; `options` become `--name value`, `true` a bare flag. Throws what the program refused. */
export async function runTrust(
  command: TrustCommand,
  options: Readonly<Record<string, string | true>>,
  signal?: AbortSignal,
): Promise<unknown> {
  const args = Object.entries(options).flatMap(([name, value]) =>
    value === true ? [`--${name}`] : [`--${name}`, value],
  );
  const { output, faults, code } = await run([PROGRAM, command, ...args], signal);
  const answer = parseJson(output.trim().split("\n").at(-1) ?? "");
  const refusal = Refusal.safeParse(answer);
  if (refusal.success) {
    const { code: name, message, next } = refusal.data;
    throw new CotalError(isErrorCode(name) ? name : ErrorCode.Internal, message, next === undefined ? {} : { next });
  }
  if (code !== 0 || answer === undefined) {
    throw new CotalError(
      ErrorCode.Internal,
      `the trust program ended with ${code ?? "a signal"} and no answer: ${faults}`,
      {
        next: "run the same command again; if it stays, report it",
      },
    );
  }
  return answer;
}

type Ran = { readonly output: string; readonly faults: string; readonly code: number | null };

function run(args: readonly string[], signal?: AbortSignal): Promise<Ran> {
  const child = spawn(process.execPath, args, {
    stdio: ["ignore", "pipe", "pipe"],
    env: childEnv(),
    timeout: TIMEOUT_MS,
    killSignal: "SIGKILL",
    // Ctrl-C is for the launcher, which ends what it started.
    detached: true,
    ...(signal === undefined ? {} : { signal }),
  });
  let output = "";
  let faults = "";
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    output = (output + text).slice(-MAX_OUTPUT);
  });
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    faults = (faults + text).slice(-500);
  });
  return new Promise((resolve, reject) => {
    child.once("error", (cause) =>
      reject(
        signal?.aborted === true
          ? new CotalError(ErrorCode.Cancelled, "the start was ended")
          : new CotalError(ErrorCode.Internal, "the trust program can't be started", { cause }),
      ),
    );
    child.once("close", (code) => resolve({ output, faults: faults.trim(), code }));
  });
}
