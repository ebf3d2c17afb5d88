/**
 * A member of durable channels as a process of its own. Each message is told on standard output before it is
 * acknowledged, with the machine's monotonic clock; `leave CHANNEL` on standard input ends a membership.
 *
 * Arguments: the broker's address, the file of its credential, its channels, the ack wait of its durable, and when to
 * end itself with SIGKILL: `before:3` in front of telling its third message, `after:3` behind that and before the
 * ack, or `never`.
 */
import { readFileSync, writeSync } from "node:fs";
import { createInterface } from "node:readline";
import { connect } from "../../shared/client/index.ts";

const [server = "", file = "", names = "", ackWaitMs = "0", die = "never"] = process.argv.slice(2);
const [when, at] = die.split(":");
const say = (what: object): void => void writeSync(1, `${JSON.stringify(what)}\n`);

const session = await connect({
  servers: [server],
  credentials: { kind: "static", text: readFileSync(file, "utf8") },
  presence: false,
  reconnect: { kind: "endless", baseMs: 50, capMs: 250 },
  limits: { ackWaitMs: Number(ackWaitMs) },
});

/** Daemon and broker may be away, or be killed over it: a join and a leave may be asked for again. */
async function untilDone(ask: () => Promise<unknown>): Promise<void> {
  for (;;) {
    try {
      return void (await ask());
    } catch {
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
}
async function leave(channel: string): Promise<void> {
  await untilDone(() => session.leave(channel));
  say({ left: channel });
}
createInterface({ input: process.stdin }).on("line", (line) => void leave(line.replace(/^leave /, "")));

const inbox = session.inbox();
await Promise.all(names.split(",").map((channel) => untilDone(() => session.join(channel, { replay: false }))));
say({ ready: true });
let count = 0;
for await (const item of inbox) {
  count += 1;
  const isLast = count === Number(at);
  if (isLast && when === "before") process.kill(process.pid, "SIGKILL");
  say({ shown: item.id, at: String(process.hrtime.bigint()) });
  if (isLast) process.kill(process.pid, "SIGKILL");
  item.ack();
}
