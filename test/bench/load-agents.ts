/**
 * Some agents of the `load` bench, in a process of their own: each posts to its channel and writes to another agent at
 * a steady pace, and reads what comes. Through the SDK, or with nats.js alone on a stream with a durable for each agent.
 */
import { AckPolicy, jetstream, jetstreamManager } from "@nats-io/jetstream";
import { type NatsConnection, connect as dial, credsAuthenticator, nuid } from "@nats-io/transport-node";
import { DEFAULT_LIMITS, connect } from "../../shared/client/index.ts";
import { AckBody, jsApi } from "../../shared/protocol/base/broker-subjects.ts";
import { answerParent } from "./child.ts";
import { type SideName, complete, pause, sinceStamp, stamp } from "./jobs.ts";
import { type Crew, type Shift, type Told, actorOf } from "./load-crew.ts";
import { emptySpread, note } from "./spread.ts";

type Agent = {
  readonly post: (text: string) => Promise<unknown>;
  readonly write: (text: string) => Promise<unknown>;
  readonly listen: (onText: (text: string) => void) => void;
  readonly close: () => Promise<void>;
};

const EVERY_MS = 1000;
const OPEN_AT_ONCE = 8;
/** What was sent last is still on its way when a run ends. */
const TAIL_MS = 3000;

const SIDES: Readonly<Record<SideName, (crew: Crew, at: number) => Promise<Agent>>> = {
  ours: async ({ url, creds, channels, peers }, at) => {
    const channel = channels[at] ?? "";
    const session = await connect({
      servers: [url],
      credentials: { kind: "static", text: creds[at] ?? "" },
    });
    const { class: kind, shortfall } = await session.join(channel, { replay: false });
    if (kind !== "durable" || shortfall !== undefined) throw new Error(`joined ${kind}: ${shortfall ?? ""}`);
    return {
      post: (text) => session.send(channel, text),
      write: (text) => session.dm(`${session.me.principal.owner}.${actorOf(peers[at] ?? 0)}`, text),
      listen: (onText) => void session.onItem(({ text }) => onText(text), { role: false, concurrency: 64 }),
      close: () => session.close(),
    };
  },
  bare: async ({ url, creds, channels, peers, first, stream }, at) => {
    const [text = ""] = creds;
    const nc = await dial({ servers: url, authenticator: credsAuthenticator(new TextEncoder().encode(text)) });
    const subject = `${stream}.${channels[at] ?? ""}`;
    const durable = nuid.next();
    const { consumers } = await jetstreamManager(nc);
    const own = `${stream}.to.${first + at}`;
    await consumers.add(stream, {
      durable_name: durable,
      filter_subjects: [subject, own],
      ack_policy: AckPolicy.Explicit,
    });
    const js = jetstream(nc);
    return {
      post: (body) => js.publish(subject, body),
      write: (body) => js.publish(`${stream}.to.${peers[at] ?? 0}`, body),
      listen: (onText) => pulling(nc, jsApi.next(stream, durable), onText),
      close: () => nc.close(),
    };
  },
};

/** Few pulls are out, as few as a session has that is not behind. */
const PULLS = 4;

function pulling(nc: NatsConnection, next: string, onText: (text: string) => void): void {
  const reply = `_INBOX.${nuid.next()}`;
  const body = JSON.stringify({ batch: 1, expires: DEFAULT_LIMITS.pullExpiresMs * 1_000_000 });
  const pull = (): void => nc.publish(next, body, { reply });
  nc.subscribe(reply, {
    callback: (error, message) => {
      if (error !== null || nc.isClosed()) return;
      if (message.reply !== undefined && message.reply !== "") {
        nc.publish(message.reply, AckBody.Ack);
        onText(message.string());
      }
      pull();
    },
  });
  for (let out = 0; out < PULLS; out += 1) pull();
}

async function open(crew: Crew): Promise<Agent[]> {
  const agents: Agent[] = [];
  for (let from = 0; from < crew.channels.length; from += OPEN_AT_ONCE) {
    const some = crew.channels.slice(from, from + OPEN_AT_ONCE);
    agents.push(...(await Promise.all(some.map((_, n) => SIDES[crew.side](crew, from + n)))));
  }
  return agents;
}

/** What the run that is on does with a text. */
let onText = (_agent: number, _text: string): void => undefined;

/** How many of the first so many sends are posts: spread evenly. */
const tenths = (sends: number, posts: number): number => Math.floor((sends * posts) / 10);

/** Every agent sends once a second, each at its own moment of it. */
async function run({ side, textBytes, posts }: Crew, agents: readonly Agent[], seconds: number): Promise<Shift> {
  const received = agents.map(() => 0);
  const [receipt, shown] = [emptySpread(), emptySpread()];
  let posted = 0;
  let written = 0;
  let failed = 0;
  onText = (at, text) => {
    received[at] = (received[at] ?? 0) + 1;
    note(shown, sinceStamp(text));
  };
  const began = performance.now();
  await Promise.all(
    agents.map(async (agent, at) => {
      for (let n = 0; n < seconds; n += 1) {
        const due = (n + at / agents.length) * EVERY_MS;
        await pause(Math.max(0, began + due - performance.now()));
        const text = stamp().padEnd(textBytes, ".");
        const isPost = tenths(n + at + 1, posts) > tenths(n + at, posts);
        try {
          await (isPost ? agent.post(text) : agent.write(text));
          if (isPost) posted += 1;
          else written += 1;
          note(receipt, sinceStamp(text));
        } catch {
          failed += 1;
        }
      }
    }),
  );
  await pause(TAIL_MS);
  if (side === "bare") complete("sent", posted + written, agents.length * seconds);
  return { posted, written, failed, received: [...received], receipt, shown };
}

let crew: Crew | undefined;
let agents: readonly Agent[] = [];

answerParent(async (told: Told): Promise<unknown> => {
  if (told.kind === "open") {
    ({ crew } = told);
    agents = await open(told.crew);
    for (const [at, agent] of agents.entries()) agent.listen((text) => onText(at, text));
    return agents.length;
  }
  if (told.kind === "run") {
    if (crew === undefined) throw new Error("nobody is here yet");
    return run(crew, agents, told.seconds);
  }
  await Promise.all(agents.map((agent) => agent.close()));
  return agents.length;
});
