/**
 * Attacks of people with valid credentials against the built space. Everything that the store holds is
 * compared before and after, by sequence, over all streams: nothing may be lost, nothing may move, and
 * what is new must be the attacker's own words under the attacker's own name.
 */
import type { Msg, NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { frontRoot, personOf } from "../support/holders.ts";
import { HEADER_TRICKS, baits, patternTargets, targets } from "../support/attacks.ts";
import { type Tap, createProber, headerBlock, publishOptions, tap } from "../support/probe.ts";
import { type Answer, api, dump, put } from "../support/raw-jetstream.ts";
import { type Minted, type TestSpace, startSpace } from "../support/space.ts";
import { type Difference, type Picture, difference, pictureOf } from "../support/store-picture.ts";
import { type Person, caller, dash, dot } from "./expected/kit.ts";
import { until } from "../support/until.ts";

const S = "main";
/** Pulls under way at once: fewer than may wait. */
const WAVE = 40;

let space: TestSpace;
let store: NatsConnection;
let mallory: Person;
let nc: NatsConnection;
let bob: Person;
let bobCredential: Minted;

beforeAll(async () => {
  space = await startSpace({ spaces: [S] });
  store = await space.store(S);
  const lists = { subscribe: ["general"], publish: ["general"], role: "reviewer" };
  const attacker = await space.mint({ actor: "mallory", owner: "others", ...lists });
  bobCredential = await space.mint({ actor: "bob", ...lists });
  [mallory, bob] = [personOf(attacker), personOf(bobCredential)];
  nc = await space.connect(attacker);
  const bobs = await space.connect(bobCredential);
  await put(bobs, `cotal.${S}.chat.${dot(bob)}.general`, "bob's post");
  await put(bobs, `cotal.${S}.inst.${dot(bob)}.${dot(bob)}`, "bob's letter to himself");
}, 60_000);

afterAll(() => space.stop());

let before: Picture;
beforeEach(async () => {
  before = await pictureOf(store);
});

const changes = async (): Promise<Difference> => difference(before, await pictureOf(store));

/** The subjects under which the attacker may lawfully leave something. */
const own = (): string[] => [
  `cotal.${S}.chat.${dot(mallory)}.general`,
  `cotal.${S}.inst.${dot(mallory)}.${dot(mallory)}`,
  `cotal.${S}.inst.${dot(bob)}.${dot(mallory)}`,
  `cotal.${S}.svc.nobody.${dot(mallory)}`,
  `cotal.${S}.svc.reviewer.${dot(mallory)}`,
];
const presence = (): string => `$KV.cotal_presence_${S}.${dot(mallory)}`;

/** Nothing is lost or moved, and nothing is new but the attacker's own words under its own name. */
function expectUnmoved({ added, lost, moved }: Difference): void {
  expect(lost.filter(({ stream }) => !stream.startsWith("KV_cotal_presence"))).toEqual([]);
  // Its own inbox moves when it pulls.
  expect(moved.filter((what) => !what.startsWith(`consumer dm_${dash(mallory)} `))).toEqual([]);
  expect(added.filter(({ subject }) => ![...own(), presence()].includes(subject))).toEqual([]);
  // A PubAck, a status or a copy of something stored would show in the bytes.
  expect(
    added.filter(
      ({ data, hdrs }) => /"stream":|"type":"io\.nats/.test(data) || /Nats-(Stream|Subject|Sequence):/.test(hdrs),
    ),
  ).toEqual([]);
}

/** A round trip over every way by which something could still be under way. */
async function expectQuiet(): Promise<void> {
  await nc.flush();
  await put(nc, `cotal.${S}.svc.nobody.${dot(mallory)}`, "order");
  await api(store, "STREAM.NAMES");
  await new Promise((resolve) => setTimeout(resolve, 250));
  expect(nc.isClosed()).toBe(false);
}

describe("W9.19 replies of the broker, aimed at every API subject, bucket, stream and import", () => {
  // Somebody listens to everything in front, so each reply finds interest there and is really sent.
  let everything: Tap;
  beforeAll(async () => {
    everything = await tap(await frontRoot(space, S), ">");
  });
  afterAll(() => everything.stop());
  beforeEach(() => void everything.messages.splice(0));
  /** Targets at which no answer arrived. `$SYS` ones are the system account's: nothing is heard of them. */
  const missed = (all: readonly string[], isAnswer: (message: Msg) => boolean): string[] => {
    const heard = new Set(everything.messages.filter(isAnswer).map(({ subject }) => subject));
    return all.filter((target) => !heard.has(target) && !target.startsWith("$SYS"));
  };

  test("PubAcks of a post, a letter, an anycast, presence, and of refused ones", async () => {
    const all = targets(S, bob);
    const posts: [string, Record<string, string>][] = [
      [`cotal.${S}.chat.${dot(mallory)}.general`, {}],
      [`cotal.${S}.inst.${dot(mallory)}.${dot(mallory)}`, {}],
      [`cotal.${S}.svc.nobody.${dot(mallory)}`, {}],
      [presence(), {}],
      [`cotal.${S}.chat.${dot(mallory)}.general`, { "Nats-Expected-Last-Sequence": "999999" }],
      [`cotal.${S}.chat.${dot(mallory)}.general`, { "Nats-Rollup": "all" }],
    ];
    for (const reply of all) {
      for (const [subject, headers] of posts) nc.publish(subject, "{}", publishOptions({ reply, headers }));
    }
    await expectQuiet();
    const found = await changes();
    expectUnmoved(found);
    // The attack ran: every post is there, and a PubAck arrived at every target in front.
    expect(found.added.filter(({ subject }) => subject === own()[1]).length).toBe(all.length);
    expect(missed(all, (message) => /"stream":"(CHAT|DM|TASK|KV_cotal_presence)_main"/.test(message.string()))).toEqual(
      [],
    );
  });

  test("statuses of a pull: nothing there, too many, too long, malformed", async () => {
    const durables = [`DM_${S}.dm_${dash(mallory)}`, `DLV_${S}.dlv_${dash(mallory)}`, `TASK_${S}.svc_reviewer`];
    const bodies = [
      '{"batch":1,"no_wait":true}',
      '{"batch":5,"no_wait":true}',
      '{"batch":1,"expires":3600000000000}',
      "{",
      "",
    ];
    // The inbox is emptied first, so that each pull is answered by a status.
    await emptyOwn();
    before = await pictureOf(store);
    for (const reply of targets(S, bob)) {
      for (const durable of durables) {
        for (const body of bodies) nc.publish(`$JS.API.CONSUMER.MSG.NEXT.${durable}`, body, { reply });
      }
    }
    await expectQuiet();
    expectUnmoved(await changes());
    expect(missed(targets(S, bob), ({ headers }) => (headers?.code ?? 0) >= 400)).toEqual([]);
  });

  test("pulled messages with chosen bytes, and the answers to acks", async () => {
    const all = targets(S, bob);
    const to = `cotal.${S}.inst.${dot(mallory)}.${dot(mallory)}`;
    const next = `$JS.API.CONSUMER.MSG.NEXT.DM_${S}.dm_${dash(mallory)}`;
    await emptyOwn();
    await unbound(`dm_${dash(mallory)}`);
    before = await pictureOf(store);
    const handedOut = () => everything.messages.filter(({ reply }) => reply?.startsWith("$JS.ACK.") === true);
    const count = all.length * baits(S).length;
    for (const bait of baits(S)) for (let n = 0; n < all.length; n += 1) nc.publish(to, bait);
    await put(nc, to, "last");
    // The pulls that were left waiting before are served first.
    await new Promise((resolve) => setTimeout(resolve, 200));
    let pulled = handedOut().length;
    for (let n = 0; n < count; n += WAVE) {
      const wave = Array.from({ length: Math.min(WAVE, count - n) }, (_, i) => all[(n + i) % all.length] ?? "");
      for (const reply of wave) nc.publish(next, '{"batch":1,"no_wait":true}', { reply });
      pulled += wave.length;
      await until("each was handed out to its target", () => handedOut().length >= Math.min(pulled, count));
    }
    const acks = handedOut().map(({ reply }) => reply ?? "");
    // Each kind of ack that is answered: done, and "done, give me the next".
    for (const [n, reply] of all.entries()) {
      nc.publish(acks[n] ?? "", "+NXT", { reply });
      nc.publish(acks[n + all.length] ?? "", "+ACK", { reply });
    }
    await expectQuiet();
    const found = await changes();
    expectUnmoved(found);
    expect(found.added.filter(({ subject }) => subject === to).length).toBe(count + 1);
  }, 120_000);

  test("W9.19 PD.07 answers of the daemons: they derive where they go, whatever reply a request names", async () => {
    const request = (command: string) => `cotal.${S}.ep.one.${command}.${caller(mallory)}.${"n".repeat(26)}`;
    const commands = ["provisioner.space", "delivery.roster", "delivery.history", "delivery.durable-list"];
    const answers = await tap(nc, `cotal.${S}.ep.reply.*.*.*.${caller(mallory)}.*`);
    const all = targets(S, bob);
    const victims = await tap(await frontRoot(space, S), "planted.reply");
    for (const reply of [...all, "planted.reply"]) {
      for (const command of [...commands, "provisioner.describe", "delivery.describe"]) {
        nc.publish(request(command), "{}", { reply });
      }
    }
    await until("both answered on the rail", () => {
      const by = answers.subjects().map((subject) => subject.split(".")[4]);
      return by.includes("provisioner") && by.includes("delivery");
    });
    await expectQuiet();
    expectUnmoved(await changes());
    expect(victims.messages).toEqual([]);
    answers.stop();
  });

  test("the trace of a message: where a publisher asks for it to go", async () => {
    const post = `cotal.${S}.chat.${dot(mallory)}.general`;
    for (const destination of targets(S, bob)) {
      for (const only of [{}, { "Nats-Trace-Only": "true" }]) {
        nc.publish(post, "traced", publishOptions({ headers: { "Nats-Trace-Dest": destination, ...only } }));
      }
    }
    await expectQuiet();
    expectUnmoved(await changes());
  });
});

/** Lifts the bound of a durable's outstanding acks, from the store's side, so that every target gets its message. */
async function unbound(durable: string): Promise<void> {
  const { config } = (await api(store, `CONSUMER.INFO.DM_${S}.${durable}`)) as unknown as {
    config: { filter_subject: string };
  };
  const body = { stream_name: `DM_${S}`, action: "update", config: { ...config, max_ack_pending: 100_000 } };
  await api(store, `CONSUMER.CREATE.DM_${S}.${durable}.${config.filter_subject}`, body);
}

/** Empties the attacker's own inbox, from the store's side. */
async function emptyOwn(): Promise<void> {
  await api(store, `STREAM.PURGE.DM_${S}`, { filter: `cotal.${S}.inst.${dot(mallory)}.>` });
}

describe("headers of a publisher", () => {
  test("W9.19 reach over nothing but its own message: rollup, life, counter, batch, schedule, expectations", async () => {
    await put(nc, `cotal.${S}.chat.${dot(mallory)}.general`, "first");
    before = await pictureOf(store);
    const answers: Answer[] = [];
    for (const subject of [...own().slice(0, 4), presence()]) {
      for (const headers of HEADER_TRICKS) answers.push(await put(nc, subject, "tricked", headers));
    }
    await expectQuiet();
    expectUnmoved(await changes());
    expect(answers.filter(({ error }) => error !== undefined).length).toBeGreaterThan(answers.length / 2);
  });

  test("a provenance name in a publisher's header is stored as it came, for receivers to refuse", async () => {
    const post = `cotal.${S}.chat.${dot(mallory)}.general`;
    await put(nc, post, "forged copy", {
      "nats-stream": "DM_main",
      "Nats-Subject": `cotal.${S}.chat.${dot(bob)}.general`,
    });
    const { added, lost, moved } = await changes();
    expect([lost, moved]).toEqual([[], []]);
    expect(added.map(({ subject, data }) => [subject, data])).toEqual([[post, "forged copy"]]);
    expect(added[0]?.hdrs).toContain("nats-stream: DM_main");
  });

  test("a squatted message id answers duplicate, so that its owner learns", async () => {
    const bobs = await space.connect(bobCredential);
    const id = { "Nats-Msg-Id": "01JGUESSED" };
    await put(nc, `cotal.${S}.chat.${dot(mallory)}.general`, "squat", id);
    const honest = await put(bobs, `cotal.${S}.chat.${dot(bob)}.general`, "mine", id);
    expect(honest["duplicate"]).toBe(true);
    const resent = await put(bobs, `cotal.${S}.chat.${dot(bob)}.general`, "mine");
    expect([resent["duplicate"], (await dump(store, `CHAT_${S}`)).at(-1)?.data]).toEqual([undefined, "mine"]);
  });
});

describe("what stays, and is written down", () => {
  test("a trace tells its publisher the names and patterns of those who listen to his own subject, and no secret", async () => {
    const post = `cotal.${S}.chat.${dot(mallory)}.general`;
    const bobs = await space.connect(bobCredential);
    const listener = await tap(bobs, `cotal.${S}.chat.*.*.general`);
    const told = await tap(nc, `cotal.${S}.chat.*.*.general`);
    nc.publish(
      post,
      "traced",
      publishOptions({ reply: `_INBOX_${mallory.connId}.x`, headers: { "Nats-Trace-Dest": post } }),
    );
    await until("the trace came", () => told.messages.some((message) => message.string().includes('"events"')));
    const trace = told.messages.map((message) => message.string()).find((text) => text.includes('"events"')) ?? "";
    expect(trace).toContain(`"sub":"cotal.${S}.chat.*.*.general"`);
    for (const secret of [bob.uid, bob.connId, "eyJ", "_INBOX"]) expect(trace).not.toContain(secret);
    listener.stop();
    told.stop();
  });
});

describe("subjects of a publisher", () => {
  test("W3.07 literal wildcards in its own subjects are nobody else's: refused, or stored under its own name", async () => {
    const me = dot(mallory);
    const subjects = [
      `cotal.${S}.chat.${me}.*`,
      `cotal.${S}.chat.${me}.>`,
      `cotal.${S}.chat.*.*.general`,
      `cotal.${S}.chat.${me}.general.>`,
    ];
    const prober = createProber(nc);
    expect(await prober.refused(subjects.map((subject) => ({ op: "pub", subject })))).toHaveLength(subjects.length);
    const letters = await tap(await space.connect(bobCredential), `_INBOX_${bob.connId}.next`);
    nc.publish(`cotal.${S}.inst.*.*.${me}`, "to everybody");
    nc.publish(`cotal.${S}.svc.*.${me}`, "to every role");
    await expectQuiet();
    const { lost, moved, added } = await changes();
    // Its own inbox moves when it pulls, or when what it did not acknowledge comes again.
    expect([lost, moved.filter((what) => !what.startsWith(`consumer dm_${dash(mallory)} `))]).toEqual([[], []]);
    expect(added.filter(({ subject }) => !subject.endsWith(me))).toEqual([]);
    expect(letters.messages).toEqual([]);
    const info = await api(store, `CONSUMER.INFO.DM_${S}.dm_${dash(bob)}`);
    expect(info["num_pending"]).toBe(
      (await dump(store, `DM_${S}`)).filter(({ subject }) => subject.startsWith(`cotal.${S}.inst.${dot(bob)}.`)).length,
    );
  });
});

describe("pulls", () => {
  test("H62 of a member's durables: one message, thirty seconds, a bounded number waiting", async () => {
    const credential = await space.mint({ actor: "greedy" });
    const greedy = personOf(credential);
    const own = await space.connect(credential);
    const reply = `_INBOX_${greedy.connId}.pulls`;
    const inbox = await tap(own, reply);
    const next = `$JS.API.CONSUMER.MSG.NEXT.DM_${S}.dm_${dash(greedy)}`;
    const codes = (code: number): number => inbox.messages.filter(({ headers }) => headers?.code === code).length;
    for (const body of [
      { batch: 2, no_wait: true },
      { batch: 1, expires: 31e9 },
    ])
      own.publish(next, JSON.stringify(body), { reply });
    await until("both are refused", () => codes(409) === 2);
    for (let n = 0; n < 200; n += 1) own.publish(next, JSON.stringify({ batch: 1, expires: 1e9 }), { reply });
    await until("all but 64 are refused", () => codes(409) >= 2 + 200 - 64);
    await until("those that waited ended", () => codes(408) > 0);
    expect(codes(409) + codes(408)).toBeLessThanOrEqual(202);
  });

  test("abandoned ones of a role end with their connection: the next holder is served", async () => {
    const [leaving, staying] = [
      await space.mint({ actor: "leaver", role: "builder" }),
      await space.mint({ actor: "stayer", role: "builder" }),
    ];
    const [leaver, stayer] = [await space.connect(leaving), await space.connect(staying)];
    const next = `$JS.API.CONSUMER.MSG.NEXT.TASK_${S}.svc_builder`;
    const gone = `_INBOX_${personOf(leaving).connId}.gone`;
    await tap(leaver, gone);
    for (let n = 0; n < 50; n += 1) leaver.publish(next, JSON.stringify({ batch: 1, expires: 29e9 }), { reply: gone });
    const waiting = async (): Promise<unknown> =>
      (await api(store, `CONSUMER.INFO.TASK_${S}.svc_builder`))["num_waiting"];
    await until("they wait", async () => (await waiting()) === 50);
    await leaver.close();
    await until("they ended", async () => (await waiting()) === 0);
    await put(nc, `cotal.${S}.svc.builder.${dot(mallory)}`, "job");
    const reply = `_INBOX_${personOf(staying).connId}.role`;
    const inbox = await tap(stayer, reply);
    stayer.publish(next, JSON.stringify({ batch: 1, expires: 5e9 }), { reply });
    await until("the job came", () => inbox.messages.length > 0);
    expect(inbox.messages.map((message) => message.string())).toEqual(["job"]);
    inbox.messages[0]?.respond("+ACK");
    await stayer.flush();
  });
});

describe("W9.15 W2.07 somebody else's inbox", () => {
  test("the reply subjects of a post are seen by live subscribers, and buy nothing but a receipt's bytes", async () => {
    const bobs = await space.connect(bobCredential);
    const heard = await tap(nc, `cotal.${S}.chat.*.*.general`);
    const token = `_INBOX_${bob.connId}.pub.${"t".repeat(26)}`;
    const victim = await tap(bobs, token);
    bobs.publish(`cotal.${S}.chat.${dot(bob)}.general`, "seen", { reply: token });
    await until("it is heard", () => heard.messages.length > 0);
    const stolen = heard.messages[0]?.reply ?? "";
    const prober = createProber(nc);
    const refused = await prober.refused([
      { op: "sub", subject: stolen },
      { op: "sub", subject: `_INBOX_${bob.connId}.>` },
      { op: "pub", subject: stolen, data: "forged" },
    ]);
    expect(refused).toHaveLength(3);
    nc.publish(`cotal.${S}.chat.${dot(mallory)}.general`, "aimed", { reply: stolen });
    await until("both receipts came", () => victim.messages.length === 2);
    expect(victim.messages.filter((message) => !message.string().startsWith('{"stream":"CHAT_main"'))).toEqual([]);
    heard.stop();
  });

  test("another holder of the same role settles only what the shared durable holds", async () => {
    const forged = [
      `$JS.ACK.DM_${S}.dm_${dash(bob)}.1.1.1.0.0`,
      `$JS.ACK.DLV_${S}.dlv_${dash(bob)}.1.1.1.0.0`,
      `$JS.ACK.TASK_${S}.svc_other.1.1.1.0.0`,
    ];
    const refused = await createProber(nc).refused(forged.map((subject) => ({ op: "pub", subject, data: "+TERM" })));
    expect(refused).toHaveLength(forged.length);
    expectUnmoved(await changes());
  });
});

describe("W9.07 W9.19 an observer", () => {
  test("leaves nothing behind, wherever its requests want their answers", async () => {
    const credential = await space.mint({ actor: "olga", profile: "observer" });
    before = await pictureOf(store);
    const watcher = await space.connect(credential);
    const me = personOf(credential);
    for (const reply of targets(S, bob)) {
      for (const command of ["provisioner.space", "delivery.channels", "delivery.roster", "delivery.history"]) {
        const subject = `cotal.${S}.ep.one.${command}.${caller(me)}.${"n".repeat(26)}`;
        watcher.publish(subject, '{"v":1}', { reply, headers: headerBlock({ "Nats-Trace-Dest": reply }) });
      }
    }
    await watcher.flush();
    await expectQuiet();
    expectUnmoved(await changes());
  });
});

describe("W9.19 W2.01 a user of front without any limits", () => {
  test("reaches nothing of the store but the exports: no API, no bucket but presence, no rail of a daemon", async () => {
    const root = await frontRoot(space, S);
    before = await pictureOf(store);
    const exported = (subject: string): boolean =>
      /^cotal\.main\.(chat|inst|svc|epj|epe|epr)\./.test(subject) ||
      /^cotal\.main\.ept\.([^.]+\.){4}schedule$/.test(subject) ||
      subject.startsWith("$KV.cotal_presence_main.") ||
      /^\$JS\.API\.CONSUMER\.MSG\.NEXT\.(DM|DLV|TASK)_main\./.test(subject);
    const unexported = targets(S, bob).filter((subject) => !exported(subject));
    for (const subject of unexported) for (const bait of baits(S)) root.publish(subject, bait);
    await root.flush();
    await expectQuiet();
    expectUnmoved(await changes());
    expect(unexported.length).toBeGreaterThan(400);
  });

  test("no stream that front can publish into obeys a publisher's header, whatever the rail", async () => {
    const root = await frontRoot(space, S);
    const subjects = [
      `cotal.${S}.chat.a.b.general`,
      `cotal.${S}.inst.a.b.c.d`,
      `cotal.${S}.svc.nobody.a.b`,
      `cotal.${S}.epj.a.b`,
      `cotal.${S}.epe.a.b`,
      `cotal.${S}.epr.a.b`,
      `cotal.${S}.ept.a.b.1.t.schedule`,
    ];
    for (const subject of subjects) await put(root, subject, "precious");
    before = await pictureOf(store);
    for (const subject of subjects) for (const headers of HEADER_TRICKS) await put(root, subject, "tricked", headers);
    await new Promise((resolve) => setTimeout(resolve, 300));
    const { added, lost, moved } = await changes();
    expect([lost.filter(({ stream }) => !stream.startsWith("KV_cotal_presence")), moved]).toEqual([[], []]);
    expect([...new Set(added.map(({ subject }) => subject))].filter((subject) => !subjects.includes(subject))).toEqual(
      [],
    );
    const written = [...before].filter(([, { entries }]) => entries.some(({ data }) => data === "precious"));
    expect(written.map(([stream]) => stream).toSorted()).toEqual(
      ["CHAT", "DM", "EPE", "EPJ", "EPR", "EPT_REQ", "TASK"].map((name) => `${name}_${S}`),
    );
    const loose = [
      "allow_rollup_hdrs",
      "allow_msg_ttl",
      "allow_msg_schedules",
      "allow_msg_counter",
      "allow_atomic",
      "allow_batched",
    ];
    const presenceToo = [...written, ...[...before].filter(([stream]) => stream === `KV_cotal_presence_${S}`)];
    expect(
      presenceToo.flatMap(([, { config }]) =>
        loose.filter((flag) => (config as Record<string, unknown>)[flag] === true),
      ),
    ).toEqual([]);
  });
});

describe("W9.19 replies that are patterns", () => {
  test("land nowhere: no API request, row or message is made for what they match", async () => {
    const posts = [...own().slice(0, 3), presence()];
    const next = `$JS.API.CONSUMER.MSG.NEXT.DM_${S}.dm_${dash(mallory)}`;
    for (const reply of patternTargets(S)) {
      for (const subject of posts) nc.publish(subject, "{}", { reply });
      nc.publish(next, '{"batch":1,"no_wait":true}', { reply });
      nc.publish(next, '{"batch":5,"no_wait":true}', { reply });
    }
    await nc.flush();
    // Such a reply cuts answers that are under way, this connection's own too (facts-split.test.ts).
    const isAnswered = (): Promise<boolean> =>
      expectQuiet().then(
        () => true,
        () => false,
      );
    await until("answers come again", isAnswered, 20_000);
    expectUnmoved(await changes());
  });
});
