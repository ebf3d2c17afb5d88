/** A process of the `live` bench: one side, told over IPC what to do. Ends with its parent. */
import { bare } from "./bare.ts";
import { answerParent } from "./child.ts";
import type { Jobs, Told } from "./jobs.ts";
import { ours } from "./ours.ts";

const SIDES = { ours, bare };
let jobs: Jobs | undefined;

answerParent(async (told: Told): Promise<unknown> => {
  if (told.kind === "setup") {
    jobs = await SIDES[told.side](told.setup);
    return undefined;
  }
  if (jobs === undefined) throw new Error("a job before the setup");
  const job: (order: never) => Promise<unknown> = jobs[told.name];
  return job(told.order as never);
});
