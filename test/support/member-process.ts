/** A member whose process ends and begins again, and what each of its processes has shown (`member-child.ts`). */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { printed } from "./printed.ts";
import type { Minted, TestSpace } from "./space.ts";

export const MEMBER_ACK_WAIT_MS = 10_000;

/** By the machine's monotonic clock, in nanoseconds. */
export type Shown = { readonly id: string; readonly at: bigint; readonly process: number };

export type Death = "before" | "after" | "anywhere";

export type Member = {
  readonly who: Minted;
  readonly channels: readonly string[];
  readonly shown: readonly Shown[];
  /** Resolves once its session is open and its channels are joined. */
  readonly ready: () => Promise<void>;
  readonly kill: () => void;
  /** Resolves once a leave is done, by whichever process. The last channel is not left: it would hear nothing more. */
  readonly leave: (channel: string) => Promise<void>;
  /** Begins no process any more; resolves when none runs. */
  readonly stop: () => Promise<void>;
};

export type MemberOptions = {
  readonly space: TestSpace;
  readonly who: Minted;
  readonly channels: readonly string[];
  /** Asked at each start: when that process ends itself. */
  readonly die: () => string;
  readonly onDeath: (death: Death | "fault") => void;
};

const CHILD = join(import.meta.dirname, "member-child.ts");

export function startMember({ space, who, channels, die, onDeath }: MemberOptions): Member {
  const file = join(space.state, `${who.view.uid}.creds`);
  writeFileSync(file, who.text, { mode: 0o600 });
  const left = new Set<string>();
  const leaving = new Map<string, () => void>();
  const shown: Shown[] = [];
  let processes = 0;
  let isStopping = false;
  let child: ChildProcess;
  let ready = Promise.withResolvers<void>();
  let ended = Promise.resolve();

  const hear = (line: string, process: number): void => {
    const told = JSON.parse(line) as { shown?: string; at?: string; ready?: true; left?: string };
    if (told.shown !== undefined) shown.push({ id: told.shown, at: BigInt(told.at ?? "0"), process });
    if (told.ready === true) ready.resolve();
    if (told.left !== undefined) {
      left.add(told.left);
      leaving.get(told.left)?.();
    }
  };
  const start = (): void => {
    const number = (processes += 1);
    const spec = die();
    const joined = channels.filter((channel) => !left.has(channel)).join(",");
    const args = [CHILD, space.url, file, joined, String(MEMBER_ACK_WAIT_MS), spec];
    const started = spawn(process.execPath, args, { stdio: ["pipe", "pipe", "pipe"] });
    child = started;
    started.stderr.on("data", (bytes: Buffer) => printed("member", bytes.toString()));
    started.stdin.on("error", () => undefined);
    const lines = createInterface({ input: started.stdout });
    lines.on("line", (line) => hear(line, number));
    for (const channel of leaving.keys()) started.stdin.write(`leave ${channel}\n`);
    const exited = once(started, "exit");
    ended = new Promise((resolve) => {
      // What it has told is read to the end first.
      const closed = once(lines, "close");
      void Promise.all([exited, closed]).then(() => {
        resolve();
        if (isStopping) return;
        if (started.signalCode !== "SIGKILL") onDeath("fault");
        else onDeath(killed ? "anywhere" : spec.startsWith("before") ? "before" : "after");
        killed = false;
        ready = Promise.withResolvers();
        start();
      });
    });
  };
  let killed = false;
  start();
  return {
    who,
    channels,
    shown,
    ready: () => ready.promise,
    kill: () => {
      killed = true;
      child.kill("SIGKILL");
    },
    leave: async (channel) => {
      const gone = left.size + leaving.size;
      if (left.has(channel) || leaving.has(channel) || !channels.includes(channel)) return;
      if (gone + 1 >= channels.length) return;
      const done = Promise.withResolvers<void>();
      leaving.set(channel, done.resolve);
      child.stdin?.write(`leave ${channel}\n`);
      await done.promise;
      leaving.delete(channel);
    },
    stop: async () => {
      isStopping = true;
      child.kill("SIGKILL");
      await ended;
    },
  };
}
