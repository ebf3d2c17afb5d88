/**
 * The space that the `live` bench runs in: agents with one credential each, a plain stream beside
 * CHAT, and what is stored there before a round.
 */
import { encodeUser } from "@nats-io/jwt";
import { jetstream, jetstreamManager } from "@nats-io/jetstream";
import type { NatsConnection } from "@nats-io/transport-node";
import { join } from "node:path";
import { kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { type Principal, dotForm } from "../../shared/protocol/base/principals.ts";
import { spaceNames } from "../../shared/protocol/base/names.ts";
import { spaceSubjects } from "../../shared/protocol/base/subjects.ts";
import { formatCreds } from "../../shared/trust/creds.ts";
import { ProvisionerFile, keptKey, trustPaths } from "../../shared/trust/folder.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { type Minted, type TestSpace, startSpace } from "../support/space.ts";
import type { Setup, SideName } from "./jobs.ts";
import { type Peer, startPeer } from "./peers.ts";

const SPACE = "main";
const TEXT_BYTES = 128;
const CHANNEL = { ours: "bench.ours", bare: "bench.bare" } as const;
const QUIET = "bench.quiet";
const PAST = "bench.past";
const PLAIN_STREAM = "BENCH";
const PLAIN_SUBJECT = "bench.plain";
const ID_LENGTH = 26;
/** CHAT keeps 1,000 of a sender and channel: history that is longer has more senders. */
const PER_SENDER = 1000;

export type Pair = { readonly sender: Peer; readonly receiver: Peer };

export type World = {
  readonly sides: Readonly<Record<SideName, Pair>>;
  readonly past: string;
  /** Stores messages of several senders in the channel `past`. */
  readonly fillPast: (count: number) => Promise<void>;
  /** Puts direct messages into the inbox of that side's receiver. */
  readonly fillInbox: (side: SideName, count: number) => Promise<void>;
  /** Writes fresh presence records. */
  readonly fillRoster: (members: number) => Promise<void>;
  readonly close: () => Promise<void>;
};

export async function openWorld(): Promise<World> {
  const space = await startSpace();
  const peers: Peer[] = [];
  try {
    const store = await space.store();
    await makePlainStream(store);
    const storeText = await storeCreds(space);
    const start = async (side: SideName, actor: string): Promise<{ peer: Peer; minted: Minted }> => {
      const minted = await space.mint({ actor: `${actor}_${side}`, subscribe: ["bench.>"], publish: ["bench.>"] });
      const setup: Setup = {
        url: space.url,
        space: SPACE,
        creds: minted.text,
        storeCreds: storeText,
        channel: CHANNEL[side],
        quietChannel: QUIET,
        textBytes: TEXT_BYTES,
        wireBytes: message(minted.view.principal, { channel: CHANNEL.ours }, 0).length,
        plainSubject: PLAIN_SUBJECT,
      };
      const peer = await startPeer(side, setup);
      peers.push(peer);
      return { peer, minted };
    };
    const pair = async (side: SideName) => ({
      sender: await start(side, "sender"),
      receiver: await start(side, "receiver"),
    });
    const both = { ours: await pair("ours"), bare: await pair("bare") };
    const only = ({ sender, receiver }: (typeof both)["ours"]): Pair => ({
      sender: sender.peer,
      receiver: receiver.peer,
    });
    return {
      sides: { ours: only(both.ours), bare: only(both.bare) },
      past: PAST,
      ...fillers(store, (side) => both[side].receiver.minted.view.principal),
      close: async () => {
        await Promise.all(peers.map((peer) => peer.stop()));
        await space.stop();
      },
    };
  } catch (thrown) {
    await Promise.all(peers.map((peer) => peer.stop()));
    await space.stop();
    throw thrown;
  }
}

function fillers(
  store: NatsConnection,
  receiver: (side: SideName) => Principal,
): Pick<World, "fillPast" | "fillInbox" | "fillRoster"> {
  const subjects = spaceSubjects(SPACE);
  const names = spaceNames(SPACE);
  const js = jetstream(store);
  // Only a well-formed owner is shown as a sender: a minted one's (§3).
  const { owner } = receiver("ours");
  let number = 0;
  /** The stream takes them in order: the answer to the last one speaks for all. */
  const put = async (count: number, make: (at: number) => readonly [subject: string, body: string]) => {
    for (let at = 0; at < count - 1; at += 1) {
      store.publish(...make(at));
      if (at % 1000 === 999) await store.flush();
    }
    await js.publish(...make(count - 1));
  };
  return {
    fillPast: (count) =>
      put(count, (at) => {
        const sender = { owner, actor: `past_${Math.floor(at / PER_SENDER)}` };
        return [subjects.chat(sender, PAST), message(sender, { channel: PAST }, (number += 1))];
      }),
    fillInbox: (side, count) =>
      put(count, () => {
        const [sender, to] = [{ owner, actor: "friend" }, receiver(side)];
        return [subjects.inst(to, sender), message(sender, { to: dotForm(to) }, (number += 1))];
      }),
    fillRoster: (members) =>
      put(members, (at) => {
        const id = dotForm({ owner, actor: `member_${at}` });
        return [kvKey(names.bucket.presence, id), presenceOf(id)];
      }),
  };
}

/** A message as the SDK sends one of such a text (§5). */
function message(sender: Principal, route: object, number: number): string {
  return JSON.stringify({
    id: String(number).padStart(ID_LENGTH, "0"),
    ts: Date.now(),
    space: SPACE,
    from: { id: dotForm(sender), name: sender.actor },
    ...route,
    parts: [{ kind: "text", text: ".".repeat(TEXT_BYTES) }],
  });
}

/** A record as the SDK writes it (§6). */
function presenceOf(id: string): string {
  return JSON.stringify({
    card: { id, name: id, kind: "agent", role: "reviewer", protocolVersion: "0.4" },
    status: "working",
    statusSince: Date.now(),
    attention: "open",
    lifecycleUid: "a".repeat(ID_LENGTH),
    runtime: { id: "b".repeat(ID_LENGTH), startedAt: Date.now(), source: "endpoint-process" },
    ts: Date.now(),
  });
}

/** Inside one account: the same limits as CHAT, other subjects. */
async function makePlainStream(store: NatsConnection): Promise<void> {
  const { streams } = await jetstreamManager(store);
  const { config } = await streams.info(spaceNames(SPACE).chat);
  const { max_msgs_per_subject, duplicate_window, storage, allow_direct } = config;
  await streams.add({
    name: PLAIN_STREAM,
    subjects: [PLAIN_SUBJECT],
    max_msgs_per_subject,
    duplicate_window,
    storage,
    allow_direct,
  });
}

/** A user of the store account with every permission there: a bench's own, unlike any profile. */
export async function storeCreds(space: TestSpace): Promise<string> {
  const paths = trustPaths(space.state);
  const signer = keptKey(join(paths.provisioner(SPACE), ProvisionerFile.StoreSigner), "account");
  const account = keptKey(join(paths.spaceTrust(SPACE), "store.nk"), "account");
  const user = newKey("user");
  const jwt = await encodeUser("bench", user.publicKey, signer.pair, { issuer_account: account.publicKey });
  return formatCreds(jwt, user);
}
