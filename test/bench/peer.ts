/** A process of the `live` bench: one side, told over IPC what to do. Ends with its parent. */
import { bare } from "./bare.ts";
import type { Answered, JobName, Jobs, Told } from "./jobs.ts";
import { ours } from "./ours.ts";

const SIDES = { ours, bare };
let jobs: Jobs | undefined;

async function obey(told: Told): Promise<unknown> {
  if (told.kind === "setup") {
    jobs = await SIDES[told.side](told.setup);
    return undefined;
  }
  if (jobs === undefined) throw new Error("a job before the setup");
  const job: (order: never) => Promise<unknown> = jobs[told.name satisfies JobName];
  return job(told.order as never);
}

process.on("message", (told: Told) => {
  const answer = (answered: Answered): void => void process.send?.(answered);
  obey(told).then(
    (result) => answer({ ok: true, result }),
    (thrown: unknown) =>
      answer({ ok: false, message: thrown instanceof Error ? (thrown.stack ?? "") : String(thrown) }),
  );
});
process.on("disconnect", () => process.exit(0));
