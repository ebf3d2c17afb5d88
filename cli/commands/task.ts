/** `cotal task status` and `task cancel`: what became of one's own request to a role, and taking it back (§8.1). */
import type { Command } from "commander";
import type { AnycastStatus } from "../../shared/protocol/chat/anycast.ts";
import type { AskedRequest, Session } from "../../shared/client/session-types.ts";
import { Exit, UsageError, wholeNumber } from "../exit.ts";
import { memberCredentials } from "../identity.ts";
import type { Output } from "../output.ts";
import { type Invocation, handle } from "../program.ts";
import { withSession } from "../session.ts";
import { oneLine } from "../text.ts";

type Options = { readonly id?: string };
type Act = (session: Session, request: AskedRequest) => Promise<AnycastStatus>;

export function registerTask(program: Command): void {
  const task = program.command("task").description("your own requests to a role, by the number that cotal ask gave");
  one(task, "status", "show what became of one", (session, request) => session.asked.status(request));
  one(task, "cancel", "take one back while nobody has taken it", (session, request) => session.asked.cancel(request));
}

function one(task: Command, name: "status" | "cancel", about: string, act: Act): void {
  const command = task
    .command(`${name} <seq>`)
    .description(about)
    .option("--id <id>", "the id that cotal ask gave: then never another request that has the number by now");
  handle<Options>(command, (invocation, seq) => run(invocation, name, act, seq));
}

async function run(
  { options, out, target }: Invocation<Options>,
  name: "status" | "cancel",
  act: Act,
  given = "",
): Promise<Exit> {
  const seq = numberOf(given);
  const { id } = options;
  const at = target();
  const credentials = await memberCredentials(at, options, out);
  const request = { seq, ...(id === undefined ? {} : { id }) };
  const status = await withSession({ target: at, credentials, out, stays: false }, (session) => act(session, request));
  print(out, status, id);
  return status.state === "unknown" || (name === "cancel" && status.state !== "cancelled") ? Exit.Refused : Exit.Done;
}

/** Whoever asked was shown a number and an id, and may well come with the other one. */
function numberOf(given: string): number {
  if (/^\d+$/.test(given)) return wholeNumber("SEQ", 1, 999_999_999_999_999)(given);
  throw new UsageError(`SEQ is the number that cotal ask said, not ${JSON.stringify(given)}`, {
    next: "it stands behind the stream: stored in TASK_main at 7; cotal trace ID finds a request by its id",
  });
}

function print(out: Output, status: AnycastStatus, id: string | undefined): void {
  const { seq, state } = status;
  const at = { kind: "task", seq, ...(id === undefined ? {} : { id }), state };
  switch (status.state) {
    case "waiting":
      return out.item({ ...at, role: status.role }, `${seq} waits for a holder of ${status.role}`);
    case "taken": {
      const { role, taker, previous } = status;
      const since = new Date(status.at).toISOString();
      const before = previous === undefined ? "" : `, after ${oneLine(previous.name)} (${previous.id})`;
      return out.item(
        { ...at, role, taker, ...(previous === undefined ? {} : { previous }), at: since },
        `${seq} was taken by ${oneLine(taker.name)} (${taker.id}) at ${since}${before}`,
      );
    }
    case "cancelled": {
      const { role, removal } = status;
      return out.item({ ...at, role, removal }, `${seq} is cancelled: ${REMOVED[removal]}`);
    }
    case "unknown":
      return out.item(at, `nothing of yours is known at ${seq}: it is done, or it never was yours`);
  }
}

const REMOVED = {
  pending: "it is not off the queue yet; ask again",
  deleted: "it is off the queue",
  "already-gone": "it had left the queue before",
} as const;
