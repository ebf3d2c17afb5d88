/** `cotal trace ID`: where a message of one's own is: stored at, copied for, handed to, confirmed by. */
import { type Command, Option } from "commander";
import type { OwnMessage, Trace } from "../../shared/client/session-types.ts";
import {
  type Looked,
  SentKind,
  type Recipient,
  type RecipientState,
  type TracedMessage,
} from "../../shared/protocol/endpoint/proof-shapes.ts";
import { ago, instant, withInstants } from "../ages.ts";
import { Exit, UsageError, wholeNumber } from "../exit.ts";
import { memberCredentials } from "../identity.ts";
import type { Item } from "../output.ts";
import { type Invocation, handle } from "../program.ts";
import { withSession } from "../session.ts";
import { oneLine, table } from "../text.ts";

type Options = { readonly kind?: string; readonly seq?: number };

export function registerTrace(program: Command): void {
  const command = program
    .command("trace <id>")
    .description("show where a message of your own is: stored, copied, handed out, confirmed")
    .addOption(new Option("--kind <kind>", "of a message whose place is known").choices(SentKind.options))
    .option("--seq <n>", "where it is stored, as the send said", wholeNumber("--seq", 1, 999_999_999_999_999));
  handle<Options>(command, trace);
}

async function trace({ options, out, target }: Invocation<Options>, id = ""): Promise<Exit> {
  const at = target();
  const message = messageOf(id, options);
  const credentials = await memberCredentials(at, options, out);
  const told = await withSession({ target: at, credentials, out, stays: false }, (session) =>
    session.proof.trace(message),
  );
  for (const found of told.found) out.item(asItem(id, told, found), ...linesOf(told, found));
  if (told.found.length > 0) return Exit.Done;
  out.item({ kind: "trace", id, state: "not-found", looked: told.looked }, ...notFound(told.looked, options));
  return Exit.Refused;
}

function messageOf(id: string, { kind, seq }: Options): OwnMessage {
  if (id === "") throw new UsageError("which message is not said", { next: "cotal send, dm and ask print its id" });
  if ((kind === undefined) !== (seq === undefined)) {
    throw new UsageError("--kind and --seq say the place together", { next: "name both, or neither" });
  }
  return kind === undefined || seq === undefined ? { id } : { id, kind: SentKind.parse(kind), seq };
}

function asItem(id: string, { asOf }: Trace, { kind: what, ...found }: TracedMessage): Item {
  const told = (list: readonly Recipient[]) =>
    list.map((one) => withInstants(one, "copiedAt", "deliveredAt", "settledAt"));
  const recipients = found["recipients"];
  const list = Array.isArray(recipients) ? told(recipients as Recipient[]) : undefined;
  const shown = recipients as { readonly list?: readonly Recipient[] } | undefined;
  const page = shown?.list === undefined ? recipients : { ...shown, list: told(shown.list) };
  return {
    ...withInstants(found, "storedAt"),
    kind: "trace",
    id,
    what,
    asOf: instant(asOf),
    ...(recipients === undefined ? {} : { recipients: list ?? page }),
  };
}

function linesOf({ asOf }: Trace, found: TracedMessage): string[] {
  switch (found.kind) {
    case "chat": {
      const { channel, recipients, deliveryClass, fanout, seq } = found;
      const head = [`#${oneLine(channel)}: ${stored(found)}`];
      if (seq > fanout.copied) head.push(`  copies are written up to ${fanout.copied}: not as far as this yet`);
      if (deliveryClass === "live") {
        head.push("  a live channel: nobody keeps count of who was here; copies are for those it mentions");
      }
      if (!recipients.shown)
        return [...head, `  for ${recipients.count}; who they are is told to who reads the channel`];
      if (recipients.list.length === 0) return [...head, "  nobody is owed a copy"];
      const more = recipients.whole ? [] : ["  and more than one look takes in"];
      return [...head, ...rows(recipients.list, asOf), ...more];
    }
    case "dm": {
      const nobody = `  nobody under ${found.to} has an inbox now: its lifecycle is over, or there never was one`;
      const head = `to ${found.to}: ${stored(found)}`;
      return [head, ...(found.recipients.length === 0 ? [nobody] : rows(found.recipients, asOf))];
    }
    case "ask": {
      const { role, request, queue, seq } = found;
      const taken = request.state === "taken" ? ` by ${oneLine(request.taker.name)} (${request.taker.id})` : "";
      const when = request.state === "taken" ? ` at ${instant(request.at)}` : "";
      const said = request.state === "unknown" ? "no record of a take" : `${request.state}${taken}${when}`;
      return [`role ${role}: request ${seq}: ${said}`, `  ${QUEUE[queue]}`];
    }
  }
}

const stored = ({ stream, seq, storedAt }: { stream: string; seq: number; storedAt: number }): string =>
  `stored in ${stream} at ${seq}, ${instant(storedAt)}`;

const QUEUE = {
  waiting: "on the queue, and handed to nobody yet",
  handed: "on the queue, and handed out to a holder who has not confirmed it",
  off: "off the queue: a holder has confirmed it, or it was cancelled",
  missing: "on the queue, and nobody was ever given this role: nobody can fetch it",
} as const;

const STATE: Readonly<Record<RecipientState, string>> = {
  copying: "stored, and not copied for it yet",
  waiting: "waits for it, and was not handed out yet",
  handed: "handed out, and not confirmed",
  unsettled: "handed out; whether it is confirmed is not known, for others around it are open",
  confirmed: "confirmed: the broker has its acknowledgement",
  gone: "nothing is kept for it: past the limit, no more readable, or never owed",
  ended: "its lifecycle is over; whether it had this is not known",
  later: "its lifecycle began after this: it never gets it",
  unknown: "not found within what one look takes in",
};

function rows(list: readonly Recipient[], asOf: number): string[] {
  return table(
    list.map(({ lifecycle, name, state, deliveredAt, settledAt }) => {
      const inbox = deliveredAt === undefined && settledAt === undefined ? "" : timesOf(asOf, deliveredAt, settledAt);
      const who = lifecycle.slice(0, lifecycle.lastIndexOf("."));
      return [`  ${name === undefined ? who : `${oneLine(name)} (${who})`}`, STATE[state], inbox];
    }),
  );
}

/** Of the whole inbox: what tells one that reads and is slow from one that does not read. */
const timesOf = (asOf: number, deliveredAt: number | undefined, settledAt: number | undefined): string =>
  `its inbox: last handed out ${ago(asOf, deliveredAt)}, last settled ${ago(asOf, settledAt)}`;

function notFound(looked: readonly Looked[], { seq }: Options): string[] {
  if (seq !== undefined)
    return [`nothing of yours under that id is stored at ${seq}: it was let go, or never was there`];
  return [
    "nothing of yours is stored under that id",
    ...looked.map(({ kind, messages, fromSeq, whole }) =>
      whole
        ? `  ${kind}: all ${messages} that are stored were looked at`
        : `  ${kind}: the newest ${messages} were looked at, down to ${fromSeq}; an older one is found with --kind ${kind} --seq N`,
    ),
  ];
}
