/**
 * Messages that a member would take for somebody else's: copies in its part of DLV, letters under another's name. Tried
 * with a credential of every profile, by every way that leads somewhere: as a plain publish, with the headers that JetStream
 * heeds, in a batch, as a request of the broker's API, and as the reply, the trace or the schedule of what the credential may
 * publish. And the other way round: what a name that is given again finds of who bore it before.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { BUILT, type Held, LAB, SPACE, filled, heldBy } from "../support/every-credential.ts";
import { echoHead, putHead } from "../support/heads.ts";
import { type Probe, createProber, publishOptions, tap } from "../support/probe.ts";
import { frontRoot } from "../support/holders.ts";
import { dump, put } from "../support/raw-jetstream.ts";
import { failure } from "../support/refusal.ts";
import { type Sessions, type TestSession, sessionsOf, take, texts } from "../support/sessions.ts";
import { type Minted, type TestSpace, startSpace } from "../support/space.ts";
import { backstopOf, markerOf } from "../support/stored-copies.ts";
import { until } from "../support/until.ts";

let space: TestSpace;
let sessions: Sessions;

type Victim = {
  readonly at: string;
  readonly session: TestSession;
  readonly friend: string;
  readonly store: NatsConnection;
};
const victims = new Map<string, Victim>();

beforeAll(async () => {
  space = await startSpace({ spaces: [SPACE, LAB] });
  sessions = sessionsOf(space);
  await putHead(space, echoHead);
  for (const at of [SPACE, LAB]) {
    const lists = { space: at, subscribe: ["general"], publish: ["general"] };
    const friend = await space.mint({ actor: "friend", ...lists });
    const { text } = await space.mint({ actor: "victim", ...lists });
    const session = await sessions.own({ credentials: { kind: "static", text } });
    await session.join("general");
    const { owner, actor } = friend.view.principal;
    victims.set(at, { at, session, friend: `${owner}.${actor}`, store: await space.store(at) });
  }
}, 60_000);
afterAll(async () => {
  await sessions.closeAll();
  await space.stop();
});

const victimOf = (at: string): Victim => {
  const found = victims.get(at);
  if (found === undefined) throw new Error(`nobody is in ${at}`);
  return found;
};
const body = ({ at, friend }: Victim, route: object, words: string): string =>
  JSON.stringify({
    id: words,
    ts: 1,
    space: at,
    from: { id: friend, name: "friend" },
    ...route,
    parts: [{ kind: "text", text: words }],
  });
type Planted = { readonly subject: string; readonly data: string; readonly headers: Record<string, string> };

/** A copy and a letter that the victim would show, if they lay where it reads. */
function planted(victim: Victim, words: string): Planted[] {
  const { at, session, friend } = victim;
  const headers = {
    "Cotal-Source-Subject": `cotal.${at}.chat.${friend}.general`,
    "Cotal-Source-Sequence": "1",
    "Cotal-Copy-Kind": "durable",
    "Cotal-Delivery-Limit": "1000",
  };
  const to = session.me.id;
  return [
    {
      subject: `cotal.${at}.dlv.${to}.${session.me.uid}`,
      data: body(victim, { channel: "general" }, `${words} copy`),
      headers,
    },
    { subject: `cotal.${at}.inst.${to}.${friend}`, data: body(victim, { to }, `${words} letter`), headers: {} },
  ];
}

/** What a stored publish, and one that is part of a batch, carries beside. */
const WAYS: readonly Readonly<Record<string, string>>[] = [
  {},
  { "Nats-Msg-Id": "forged" },
  { "Nats-Batch-Id": "forged", "Nats-Batch-Sequence": "1", "Nats-Batch-Commit": "1" },
];

/** Requests that would have the broker bring them there: another stream's copies, a consumer that delivers. */
function requests({ at, session }: Victim): Probe[] {
  const dlv = `cotal.${at}.dlv.${session.me.id}.${session.me.uid}`;
  const config = { subjects: ["planted.>"], storage: "memory", republish: { src: "planted.>", dest: dlv } };
  const sources = [{ name: `CHAT_${at}`, subject_transforms: [{ src: `cotal.${at}.chat.>`, dest: dlv }] }];
  const consumer = { stream_name: `CHAT_${at}`, config: { name: "planted", deliver_subject: dlv, ack_policy: "none" } };
  const asked: Readonly<Record<string, object>> = {
    "STREAM.CREATE.PLANTED": { name: "PLANTED", ...config },
    [`STREAM.UPDATE.DLV_${at}`]: { name: `DLV_${at}`, ...config, sources },
    [`STREAM.UPDATE.DM_${at}`]: { name: `DM_${at}`, ...config, sources },
    [`CONSUMER.CREATE.CHAT_${at}.planted`]: consumer,
    [`CONSUMER.DURABLE.CREATE.CHAT_${at}.planted`]: consumer,
  };
  return Object.entries(asked).map(([verb, data]) => ({
    op: "pub",
    subject: `$JS.API.${verb}`,
    data: JSON.stringify(data),
    reply: dlv,
  }));
}

/** Everything of it is refused, however it is dressed. */
async function tryDirectly(nc: NatsConnection, victim: Victim, words: string): Promise<void> {
  const prober = createProber(nc);
  for (const way of WAYS) {
    const probes = [
      ...planted(victim, words).map(({ headers, ...one }): Probe => ({
        op: "pub",
        ...one,
        headers: { ...headers, ...way },
      })),
      ...requests(victim),
    ];
    expect(await prober.refused(probes)).toEqual(probes);
  }
}

/** What would take something away is not for here: whoever may do that has no need to forge. */
const TAKES_AWAY = /\.(PURGE|DELETE|RESTORE|STEPDOWN|REMOVE)\./;

/** What it may publish is published, with the victim's subjects wherever the broker could be told to go. */
async function tryIndirectly(nc: NatsConnection, { rows }: Held, victim: Victim, words: string): Promise<void> {
  for (const { subject: aim, data, headers } of planted(victim, words)) {
    const ways = [
      { reply: aim, headers },
      { headers: { ...headers, "Nats-Trace-Dest": aim } },
      { reply: aim, headers: { ...headers, "Nats-Schedule": "@at 2020-01-01T00:00:00Z", "Nats-Schedule-Target": aim } },
    ];
    for (const row of rows) {
      if (row.op !== "pub" || TAKES_AWAY.test(row.subject)) continue;
      for (const way of ways) nc.publish(filled(row.subject), data, publishOptions(way));
    }
  }
  await nc.flush();
}

/** What was stored for the victim, but for its own words. */
async function storedFor({ at, session, store }: Victim): Promise<string[]> {
  const mine = [`cotal.${at}.dlv.${session.me.id}.`, `cotal.${at}.inst.${session.me.id}.`];
  const all = [...(await dump(store, `DLV_${at}`)), ...(await dump(store, `DM_${at}`))];
  return all
    .filter(({ subject }) => mine.some((lead) => subject.startsWith(lead)))
    .map(({ subject, data }) => `${subject} ${data}`);
}

/** Puts what is whole behind all of it: whatever the victim shows, it shows before that. */
async function shownBy(victim: Victim, words: string): Promise<string[]> {
  for (const { subject, data, headers } of planted(victim, words)) {
    expect((await put(victim.store, subject, data, headers)).error).toBeUndefined();
  }
  return texts(await take(victim.session, 2));
}

describe("W9.15 W9.19 W8.10 W2.07 forged copies and letters", () => {
  test("by every credential of front, of the sign-in and of the system account: nothing is stored, and nothing surfaces", async () => {
    const heard = await Promise.all(
      [...victims.values()].map(async (victim) => {
        const root = await frontRoot(space, victim.at);
        return Promise.all(planted(victim, "").map(({ subject }) => tap(root, subject)));
      }),
    );
    const tried = new Set<string>();
    for (const profile of BUILT) {
      for (const one of await heldBy(space, profile)) {
        if (one.account === "store") continue;
        // One that serves every space is no nearer to one of them.
        const victim = victimOf(one.space === "broker" ? SPACE : one.space);
        const nc = await space.connect(one.credential);
        const words = `forged by ${profile} in ${one.account}`;
        await tryDirectly(nc, victim, words);
        await tryIndirectly(nc, one, victim, words);
        await nc.close();
        tried.add(profile);
      }
    }
    expect(
      ["agent", "operator", "service", "delivery", "auth-server", "connection-evictor"].filter(
        (one) => !tried.has(one),
      ),
    ).toEqual([]);
    for (const victim of victims.values()) {
      expect(await storedFor(victim)).toEqual([]);
      expect((await shownBy(victim, "first")).toSorted()).toEqual(["first copy", "first letter"]);
      // What somebody said under its own name is no forgery, and is refused for whom it names.
      expect(Object.keys(victim.session.stats().rejected).filter((reason) => reason !== "sender-mismatch")).toEqual([]);
    }
    // The broker was told to go there, and its answers went: in front, where nothing is stored.
    expect(heard.flat().map(({ messages }) => messages.length > 0)).toEqual([true, true, true, true]);
  }, 120_000);

  test("A.04 W2.01 one delivery service serves both spaces: what is said in one gives a copy there, and nothing in the other", async () => {
    for (const victim of victims.values()) {
      const { at, friend, store } = victim;
      const post = body(victim, { channel: "general" }, `said in ${at}`);
      expect((await put(store, `cotal.${at}.chat.${friend}.general`, post)).error).toBeUndefined();
    }
    for (const victim of victims.values()) {
      expect(texts(await take(victim.session, 1))).toEqual([`said in ${victim.at}`]);
      const copies = (await dump(victim.store, `DLV_${victim.at}`)).filter(({ data }) => data.includes("said in"));
      expect(copies.map(({ subject }) => subject.split(".")[1])).toEqual([victim.at]);
    }
  }, 30_000);

  test("by every credential of the store: who may write copies or letters is named here, and nobody else's surfaces", async () => {
    const victim = victimOf(LAB);
    const nobody = { ...victim, session: { ...victim.session, me: { ...victim.session.me, id: "u_n.nobody" } } };
    const [copy, letter] = planted(nobody, "to nobody").map(({ subject }): Probe => ({
      op: "pub",
      subject,
      data: "x",
    }));
    const writers = { copies: new Set<string>(), letters: new Set<string>() };
    for (const profile of BUILT) {
      for (const one of await heldBy(space, profile)) {
        if (one.account !== "store" || copy === undefined || letter === undefined) continue;
        const nc = await space.connect(one.credential);
        const prober = createProber(nc);
        if (!(await prober.isRefused(copy))) writers.copies.add(profile);
        if (!(await prober.isRefused(letter))) writers.letters.add(profile);
        await tryIndirectly(nc, one, victim, `forged by ${profile}`);
        await nc.close();
      }
    }
    expect([...writers.copies].toSorted()).toEqual(["delivery", "space-restorer"]);
    expect([...writers.letters].toSorted()).toEqual(["space-restorer"]);
    // The broker's own answers may be stored there: they are no copy of anything, and nobody's letter.
    expect((await shownBy(victim, "second")).toSorted()).toEqual(["second copy", "second letter"]);
  }, 120_000);
});

describe("W2.07 W8.23 W4.06 a name that is given again", () => {
  const again = (credential: Minted) => sessions.own({ credentials: { kind: "static", text: credential.text } });
  async function ended(credential: Minted): Promise<void> {
    const { owner, actor } = credential.view.principal;
    const begun = (await space.call("deprovision", { owner, actor })) as { uid: string; users: string[]; opId: string };
    await space.trust("revoke", "--space", SPACE, "--server", space.url, "--users", begun.users.join(","));
    await space.call("deprovision-complete", { owner, actor, uid: begun.uid, opId: begun.opId });
  }

  test("W8.08 its bearer sees nothing of the one before: no letter, no copy, no mention, no request, no count, no history", async () => {
    const store = victimOf(SPACE).store;
    await space.call("channel-set", { channel: "named.live", change: { deliveryClass: "live" } });
    const all = { subscribe: ["named.>"], publish: ["named.>"] };
    const from = await sessions.minted({ actor: "writer", ...all });
    const first = await space.mint({ actor: "recycled", role: "heir", ...all });
    const before = await again(first);
    expect(await before.join("named.room")).toMatchObject({ state: "joined durable" });
    const sent = [
      await from.dm(before.me.id, "an old letter"),
      await from.send("named.live", "an old mention", { mentions: ["recycled"] }),
      await from.send("named.room", "an old post"),
    ];
    await from.ask("heir", "an old request");
    await until("the copies are written", async () => ((await markerOf(store))?.sequence ?? 0) >= (sent[2]?.seq ?? 0));
    expect(await backstopOf(store, before.me)).toEqual({ waiting: 2, unacknowledged: 0 });
    await before.close();
    await ended(first);

    // In the gap, and from then on to the same name.
    await from.dm(before.me.id, "a letter to nobody");
    await from.send("named.room", "a post in the gap");
    await from.send("named.live", "a mention in the gap", { mentions: ["recycled"] });
    const next = await again(await space.mint({ actor: "recycled", subscribe: ["named.live"], publish: ["named.>"] }));
    expect([next.me.id, next.me.uid === before.me.uid]).toEqual([before.me.id, false]);
    const { data } = await next.call(EndpointName.Delivery, "durable-list", {});
    expect(data).toEqual({ memberships: [] });
    const { member } = await next.proof.pending();
    const none = { state: "known", waiting: 0, handed: 0 };
    expect(member).toMatchObject({ uid: next.me.uid, tiers: [none, none] });
    expect(await failure(next.history("named.room"))).toMatchObject({ code: "permission-denied" });
    // Each line brings what is its own, and nothing before it.
    await from.send("named.live", "a new mention", { mentions: ["recycled"] });
    await from.dm(next.me.id, "a new letter");
    expect(texts(await take(next, 2)).toSorted()).toEqual(["a new letter", "a new mention"]);
    await until("nothing else lies there", async () => {
      const { waiting, unacknowledged } = await backstopOf(store, next.me);
      return waiting + unacknowledged === 0;
    });
    expect(next.stats().received).toMatchObject({ chat: 1, dm: 1 });
    // Of the old one nothing is left but what was said, within the history that the list of the new one covers.
    await until("its copies and its list are gone", async () => (await storedUnder(store, before.me.uid)).length === 0);
    expect(texts(await next.history("named.live"))).toContain("an old mention");
  }, 60_000);
});

/** Copies and the read list that are stored under a lifecycle's own name; a membership without a list authorises nothing. */
async function storedUnder(store: NatsConnection, uid: string): Promise<string[]> {
  const names = ["DLV_main", "KV_cotal_acl_main"];
  const all = (await Promise.all(names.map((name) => dump(store, name)))).flat();
  return all.filter(({ subject, data }) => subject.includes(uid) && data !== "").map(({ subject }) => subject);
}
