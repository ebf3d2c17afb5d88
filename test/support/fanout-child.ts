/**
 * The fan-out writer of one group as a process of its own, over a bare broker: it kills itself with SIGKILL before
 * or after a durable step that it is told, or runs until it is ended.
 *
 * Arguments: the broker's address, the step (0 for none), `before` or `after`; or `stop`, which stops it with SIGSTOP
 * before a batch that is this step, and has it go on with it at SIGCONT. It prints what each writer ended with.
 */
import { connect } from "@nats-io/transport-node";
import { createBell } from "../../services/delivery/fanout/bell.ts";
import { createRequests } from "../../services/delivery/fanout/requests.ts";
import { writeGroup } from "../../services/delivery/fanout/writer.ts";
import { type Writer, createWriter } from "../../shared/broker/write.ts";
import { toCotalError } from "../../shared/protocol/base/errors.ts";

const [server = "", step = "0", when = "before"] = process.argv.slice(2);
const nc = await connect({ servers: server });
const kill = (): void => {
  process.kill(process.pid, "SIGKILL");
};
const at = Number(step);
const moment = when === "after" ? "after" : "before";
const bell = createBell(nc, "main");
const stopping = new AbortController();
process.on("SIGTERM", () => {
  stopping.abort();
  bell.ring();
});
const stoppingAt = (step: number, writer: Writer): Writer => ({
  ...writer,
  effect: (run) => {
    if (writer.count() + 1 === step) process.kill(process.pid, "SIGSTOP");
    return writer.effect(run);
  },
});
const made = (): Writer => {
  if (when === "stop") return stoppingAt(at, createWriter({ nc }));
  return createWriter({ nc, die: at === 0 ? undefined : { at, when: moment, kill } });
};
while (!stopping.signal.aborted) {
  const writer = made();
  const requests = createRequests(bell.ring);
  const parts = { nc, space: "main", group: 0, groups: 1, instanceId: `child${process.pid}`, writer, bell, requests };
  try {
    await writeGroup({ ...parts, tell: () => undefined }, stopping.signal);
  } catch (thrown) {
    process.stdout.write(`${toCotalError(thrown).code}\n`);
    // Overtaken: it claims the marker again, as the daemon does, later than whoever overtook it needs.
    await new Promise((resolve) => setTimeout(resolve, 700));
  }
}
bell.stop();
await nc.close();
