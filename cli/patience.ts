/** What takes its time says so once, to a person: a command that is silent for seconds looks as if it hung. */
import type { Output } from "./output.ts";

const SOON_MS = 1500;

export async function sayIfLong<T>(out: Output, text: string, run: () => Promise<T>): Promise<T> {
  const timer = setTimeout(() => out.note(text), SOON_MS);
  try {
    return await run();
  } finally {
    clearTimeout(timer);
  }
}
