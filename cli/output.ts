/**
 * What a command prints: text for a person, or with `--json` one object a line, each with a `kind`.
 *
 * Invariants
 * 1. With `--json` nothing but such objects is printed: results and the error that ends the command
 *    on standard output, what happens beside them on standard error; hints for a person are left out.
 * 2. Colour only on a terminal, never under `NO_COLOR`.
 * 3. A reader that went away (`| head`, a closed terminal) ends the program quietly; one that has to leave in
 *    order is told instead (`brokenOutput`).
 */
import { styleText } from "node:util";
import { type CotalError, ErrorCode } from "../shared/protocol/base/errors.ts";
import { UsageError } from "./exit.ts";
import { oneLine } from "./text.ts";

export type Item = { readonly kind: string; readonly [field: string]: unknown };
type Style = "bold" | "dim" | "green" | "yellow" | "red" | "cyan";

export type Output = {
  readonly json: boolean;
  /** The result: the object under `--json`, else the lines. */
  readonly item: (item: Item, ...lines: readonly string[]) => void;
  /** For a person only, on standard error. */
  readonly note: (...lines: readonly string[]) => void;
  /** What happens beside the result, on standard error: the object under `--json`, else the text. */
  readonly notice: (item: Item, text: string) => void;
  readonly error: (error: CotalError) => void;
  readonly style: (style: Style, text: string) => string;
};

export function createOutput(json: boolean): Output {
  const style = (name: Style, text: string, stream: NodeJS.WriteStream): string =>
    // Node decides: a terminal, NO_COLOR, FORCE_COLOR.
    styleText(name, text, { stream, validateStream: true });
  return {
    json,
    style: (name, text) => style(name, text, process.stdout),
    item: (item, ...lines) => {
      if (json) process.stdout.write(`${JSON.stringify(item)}\n`);
      else for (const line of lines) process.stdout.write(`${line}\n`);
    },
    note: (...lines) => {
      if (json) return;
      for (const line of lines) process.stderr.write(`${line}\n`);
    },
    notice: (item, text) => {
      process.stderr.write(`${json ? JSON.stringify(item) : style("yellow", text, process.stderr)}\n`);
    },
    error: (error) => {
      const { code, message, next = nextOf(error), outcome } = error;
      if (json) {
        // A script that may ask again has to know whether it ran; what was never asked of anybody did not.
        const known = error instanceof UsageError || outcome === undefined ? {} : { outcome };
        process.stdout.write(`${JSON.stringify({ kind: "error", code, message, next, ...known })}\n`);
      } else {
        const mark = style("red", `cotal: ${code}:`, process.stderr);
        process.stderr.write(`${mark} ${oneLine(message)}\n  next: ${oneLine(next)}\n`);
      }
    },
  };
}

/** What to do where nobody said it: a doctor finds nothing wrong with a mistyped command. */
function nextOf({ code }: CotalError): string {
  return code === ErrorCode.BadRequest ? "see cotal COMMAND --help" : "run cotal doctor to see what is wrong";
}

const STREAMS = [process.stdout, process.stderr];

/** A closed reader is no fault; anything else that stdout says is. */
export function watchBrokenPipe(): void {
  for (const stream of STREAMS) {
    stream.on("error", (error: NodeJS.ErrnoException) => {
      process.exit(error.code === "EPIPE" ? 0 : 1);
    });
  }
}

/** From now on a reader that went away ends nothing by itself: this is aborted, and what is said goes nowhere. */
export function brokenOutput(): AbortSignal {
  const broken = new AbortController();
  for (const stream of STREAMS) {
    stream.removeAllListeners("error");
    stream.on("error", () => broken.abort());
  }
  return broken.signal;
}
