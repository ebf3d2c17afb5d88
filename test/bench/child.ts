/**
 * A process of a bench: told over IPC what to do, one thing at a time, and answering with what came of it.
 * Both ends of that talk.
 */
import type { ChildProcess } from "node:child_process";
import { once } from "node:events";

type Answered = { readonly ok: true; readonly result: unknown } | { readonly ok: false; readonly message: string };

/** No job takes nearly as long: a child that is silent waits for something that never comes. */
const LONGEST_MS = 60_000;

/** Tells a child to do something that takes no longer than this. Rejects with what the child says, or when it ends. */
export function ask(child: ChildProcess, what: string, told: object, longestMs = LONGEST_MS): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const settle = (end: () => void): void => {
      clearTimeout(timer);
      child.off("exit", ended).off("message", answered);
      end();
    };
    const fail = (why: string): void => settle(() => reject(new Error(why)));
    const ended = (code: number | null): void => fail(`a peer ended with ${code ?? "a signal"} at ${what}`);
    const answered = (answer: Answered): void => {
      if (answer.ok) settle(() => resolve(answer.result));
      else fail(`a peer failed at ${what}: ${answer.message}`);
    };
    const timer = setTimeout(() => fail(`a peer has been silent for ${longestMs} ms at ${what}`), longestMs);
    child.once("exit", ended).once("message", answered);
    child.send(told);
  });
}

/** The child's side: answers each thing it is told with what `obey` comes to. Ends with its parent. */
export function answerParent<Told>(obey: (told: Told) => Promise<unknown>): void {
  process.on("message", (told: Told) => {
    const answer = (answered: Answered): void => void process.send?.(answered);
    obey(told).then(
      (result) => answer({ ok: true, result }),
      (thrown: unknown) =>
        answer({ ok: false, message: thrown instanceof Error ? (thrown.stack ?? "") : String(thrown) }),
    );
  });
  process.on("disconnect", () => process.exit(0));
}

/** Ends a child that answers its parent. */
export async function endChild(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, "exit");
  child.disconnect();
  await ended;
}
