/** What `send`, `dm` and `ask` share: their text, and the fact that a send rests on. */
import type { Sent } from "../shared/client/session-types.ts";
import { UsageError } from "./exit.ts";
import type { Output } from "./output.ts";

/** The words as one text; a lone `-` reads standard input to its end. */
export async function textArgument(words: readonly string[]): Promise<string> {
  const text = words.length === 1 && words[0] === "-" ? await standardInput() : words.join(" ");
  if (text !== "") return text;
  throw new UsageError("the text is empty", { next: "say something, or pipe it in and write - for the text" });
}

async function standardInput(): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of process.stdin) chunks.push(Buffer.from(chunk as Uint8Array));
  return Buffer.concat(chunks)
    .toString("utf8")
    .replace(/\r?\n$/, "");
}

export function printSent(out: Output, sent: Sent, to: Readonly<Record<string, string>>, where: string): void {
  const { id, stream, seq, duplicate, waitsFor } = sent;
  const again = duplicate ? ", which had arrived already" : "";
  out.item(
    { kind: "sent", id, ...to, stream, seq, duplicate, ...(waitsFor === undefined ? {} : { waitsFor }) },
    `sent to ${where}: stored in ${stream} at ${seq} as ${id}${again}`,
  );
}
