/**
 * A space is backed up, lost, and restored: what everybody wrote and was owed is there, and nobody's credential is.
 *
 * The first space is of separate daemons, the restored one of `cotal up`: the same commands serve both.
 */
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import type { Connection } from "../../shared/broker/connect.ts";
import { streamState } from "../../shared/broker/ensure.ts";
import { type InboxItem, connect } from "../../shared/client/index.ts";
import { dotForm } from "../../shared/protocol/base/principals.ts";
import { parseCreds } from "../../shared/trust/creds.ts";
import { type Ran, type TestPlane, cli, endAll, eventually, planeOn } from "../support/cli.ts";
import { startDeliveryService } from "../support/delivery-service.ts";
import { freePort } from "../support/nats-server.ts";
import { api, dump } from "../support/raw-jetstream.ts";
import { failure } from "../support/refusal.ts";
import { type TestSession, sessionsOf, take, texts } from "../support/sessions.ts";
import { type Minted, startSpace } from "../support/space.ts";
import { lookInto } from "../support/store-looker.ts";
import { backstopOf, copiesOf, markerOf, rowsOf } from "../support/stored-copies.ts";
import { until } from "../support/until.ts";

vi.setConfig({ testTimeout: 120_000, hookTimeout: 240_000 });

const ALL = { subscribe: [">"], publish: [">"] };
const folder = mkdtempSync(join(tmpdir(), "cotal-backup-"));
const backup = join(folder, "backup");
const fresh = join(folder, "state");
const stores = ["CHAT_main", "DM_main", "TASK_main"] as const;

/** What the first space held when its backup was taken, and whom it let in. */
type Before = {
  readonly messages: ReadonlyMap<string, readonly string[]>;
  readonly created: string;
  readonly memberships: readonly unknown[];
  readonly limits: Record<string, unknown>;
  readonly away: Minted;
  readonly speaker: Minted;
  readonly credentials: readonly string[];
  readonly requests: readonly { readonly seq: number; readonly id: string }[];
  readonly owed: readonly string[];
};
let before: Before;
let plane: TestPlane;
let store: Connection;

beforeAll(async () => {
  before = await fillAndLose();
  const port = await freePort();
  expectDone(await cli(["restore", backup, "--state", fresh, "--port", String(port), "--json"]));
  expectDone(await cli(["up", "--detach", "--state", fresh, "--json"]));
  plane = planeOn(fresh, port);
  store = await lookInto(fresh, plane.server);
});
afterAll(async () => {
  await store?.close();
  await plane?.stop();
  endAll();
  rmSync(folder, { recursive: true, force: true });
});

function expectDone({ code, out, err }: Ran): void {
  if (code !== 0) throw new Error(`ended with ${code}: ${out} ${err}`);
}

/** Fills a space, takes the backup while it is served, and destroys it. */
async function fillAndLose(): Promise<Before> {
  const space = await startSpace();
  const delivery = startDeliveryService(space);
  await delivery.ready();
  const looking = await space.store();
  const sessions = sessionsOf(space);
  const passed = (seq: number) => until("fanned out", async () => ((await markerOf(looking))?.sequence ?? 0) >= seq);
  const as = ({ text }: Minted): Promise<TestSession> => sessions.own({ credentials: { kind: "static", text } });

  await space.call("limits-set", { store: "chat", maxPerSubject: 6 });
  await space.call("limits-set", { store: "dm", maxAgeSeconds: 86_400 });
  const [speaker, away, worker, ended, gap] = [
    await space.mint({ actor: "speaker", ...ALL }),
    await space.mint({ actor: "away", ...ALL }),
    await space.mint({ actor: "worker", ...ALL, role: "work" }),
    await space.mint({ actor: "ended", ...ALL }),
    await space.mint({ actor: "gap", ...ALL }),
  ];
  const from = await as(speaker);
  const member = await as(away);
  await member.join("d1");
  await passed((await from.send("d1", "shown")).seq);
  await from.dm(dotForm(away.view.principal), "read");
  await take(member, 2);
  await until("acknowledged", async () => {
    const { waiting, unacknowledged } = await backstopOf(looking, member.me);
    return waiting + unacknowledged === 0;
  });
  await member.close();
  await leaveGap(await as(gap), from, looking);
  // Six are kept of one sender in one channel: the stream has a hole where the first ones were.
  for (let n = 1; n <= 8; n += 1) await passed((await from.send("d1", `away ${n}`)).seq);
  await from.dm(dotForm(away.view.principal), "unread");
  await from.dm(dotForm(ended.view.principal), "to one who ends");

  const holder = await as(worker);
  const asked: { seq: number; id: string }[] = [];
  for (const text of ["done", "taken", "waiting"]) {
    const { seq, id } = await from.ask("work", text);
    asked.push({ seq, id });
  }
  const inbox = holder.inbox();
  const done = await inbox.next();
  done.value?.ack();
  await until("off the queue", async () => (await streamState(looking, "TASK_main")).messages === 2);
  const taken = await inbox.next();
  if (taken.value?.text !== "taken") throw new Error("the second request was to come second");
  await until("recorded", async () => (await from.asked.status(asked[1] ?? { seq: 0 })).state === "taken");
  await holder.close();
  const person = ended.view.principal;
  expectDone(await cli(["deprovision", dotForm(person), "--state", space.state, "--server", space.url]));

  const owed = (await copiesOf(looking, member.me)).map(({ text }) => text).filter((text) => text !== "shown");
  expectDone(await cli(["backup", "main", backup, "--state", space.state, "--server", space.url, "--json"]));
  const picture: Before = {
    messages: await messagesOf(looking),
    created: (await streamState(looking, "TASK_main")).created,
    memberships: await rowsOf(looking, member.me),
    limits: (await space.call("limits-show", {})) as Record<string, unknown>,
    away,
    speaker,
    credentials: [speaker.text, away.text, worker.text, readFileSync(operatorFile(space.state), "utf8")],
    requests: asked,
    owed,
  };
  await sessions.closeAll();
  await delivery.kill("SIGTERM");
  await space.stop();
  return picture;
}

const GAP = ["gap 1", "gap 2", "gap 3", "gap 4"];

/** Acknowledges what comes first, then all but one of what follows, and goes on reading while the backup is taken. */
async function leaveGap(member: TestSession, from: TestSession, looking: NatsConnection): Promise<void> {
  await member.join("d2");
  const shown = new Set<string>();
  member.onItem(
    ({ text }) => {
      shown.add(text);
      return text === "gap 1" ? new Promise(() => undefined) : undefined;
    },
    { concurrency: GAP.length },
  );
  const left = (copies: number) => async () => {
    const { waiting, unacknowledged } = await backstopOf(looking, member.me);
    return waiting === 0 && unacknowledged === copies;
  };
  await from.send("d2", "before the gap");
  await until("read", () => shown.has("before the gap"));
  await until("acknowledged", left(0));
  for (const text of GAP) await from.send("d2", text);
  await until("read but for one", () => GAP.every((text) => shown.has(text)));
  await until("one is not acknowledged", left(1));
}

const operatorFile = (state: string): string => join(state, "spaces", "main", "operator", "operator.creds");

/** Each message by what it is to a reader: its number, its subject and its bytes. */
async function messagesOf(nc: NatsConnection): Promise<Map<string, string[]>> {
  const all = new Map<string, string[]>();
  for (const name of stores) {
    const entries = await dump(nc, name);
    all.set(
      name,
      entries.map(({ seq, subject, data }) => `${seq} ${subject} ${data}`),
    );
  }
  return all;
}

const mintedFile = new Map<string, string>();

/** Mints a name of the restored space; what a person would do. */
async function mintAnew(actor: string, ...more: string[]): Promise<string> {
  const known = mintedFile.get(actor);
  if (known !== undefined) return known;
  const file = join(folder, `${actor}.creds`);
  const lists = ["--subscribe", ">", "--publish", ">"];
  await plane.json("mint", "--owner", "acme", "--actor", actor, ...lists, "--out", file, ...more);
  const text = readFileSync(file, "utf8");
  mintedFile.set(actor, text);
  return text;
}

const sessionOf = (text: string) => connect({ servers: [plane.server], credentials: { kind: "static", text } });

async function store2(): Promise<NatsConnection> {
  await store.up(10_000);
  return store.nc;
}

describe("A.07 a space that was lost and restored", () => {
  test("holds every message at the sequence it had, in a queue that is a new one", async () => {
    const nc = await store2();
    const found = await messagesOf(nc);
    expect(found).toEqual(before.messages);
    expect(before.messages.get("CHAT_main")).toHaveLength(6 + 1 + GAP.length);
    expect(before.messages.get("DM_main")?.length).toBeGreaterThanOrEqual(3);
    expect(before.messages.get("TASK_main")).toHaveLength(2);
    expect((await streamState(nc, "TASK_main")).created).not.toBe(before.created);
  });

  test("keeps its limits, and cotal doctor finds nothing", async () => {
    const [limits] = await plane.json("limits", "show");
    expect(limits).toMatchObject(before.limits);
    const doctor = await eventually(
      () => plane.run("doctor"),
      ({ code }) => code === 0,
      60_000,
    );
    expect(doctor).toMatchObject({ code: 0 });
  });

  test("W9.14 lets nobody in by a credential of before", async () => {
    for (const text of before.credentials) {
      const refused = await failure(
        connect({
          servers: [plane.server],
          credentials: { kind: "static", text },
          reconnect: { kind: "bounded", attempts: 1 },
        }),
      );
      expect(refused).toMatchObject({ code: "unauthenticated" });
    }
    const key = parseCreds(before.credentials[0] ?? "").view.userKey;
    const rows = await dump(await store2(), "KV_cotal_auth_main");
    expect(rows.filter(({ subject }) => subject.endsWith(key))).toEqual([]);
  });

  test("W131.01 ends every lifecycle of before: its UID is reserved, its gate retired, its alias another's", async () => {
    const nc = await store2();
    const { principal, uid } = before.away.view;
    const gate = await row(nc, "auth", `gate.${uid}`);
    expect(gate).toMatchObject({ state: "retired" });
    expect(await row(nc, "records", `uid.${uid}`)).toMatchObject({ lifecycleUid: uid });
    const head = await row(nc, "records", `lifecycle.${dotForm(principal)}`);
    expect(head).toMatchObject({ state: "active" });
    expect(head["lifecycleUid"]).not.toBe(uid);
  });

  test("W81.13 records of requests come back empty; a taken request waits again, under its number, and is delivered as the first time", async () => {
    const nc = await store2();
    expect(await dump(nc, "KV_cotal_anycast_main")).toEqual([]);
    const asker = await sessionOf(await mintAnew("speaker"));
    const [done, taken, waiting] = before.requests;
    expect(await asker.asked.status(done ?? { seq: 0 })).toMatchObject({ state: "unknown" });
    expect(await asker.asked.status(taken ?? { seq: 0 })).toMatchObject({ state: "waiting", seq: taken?.seq });
    expect(await asker.asked.status(waiting ?? { seq: 0 })).toMatchObject({ state: "waiting" });
    const holder = await sessionOf(await mintAnew("worker", "--role", "work"));
    const again = await take(holder, 2);
    expect(texts(again)).toEqual(["taken", "waiting"]);
    expect(await asker.asked.status(taken ?? { seq: 0 })).toMatchObject({ state: "taken" });
    const [{ created }, records] = [await streamState(nc, "TASK_main"), await dump(nc, "KV_cotal_anycast_main")];
    const epoch = created.replaceAll(/[^0-9A-Za-z]/g, "");
    expect(records.filter(({ subject }) => subject.includes(`.r.${epoch}.`)).length).toBe(records.length);
    await Promise.all([asker.close(), holder.close()]);
  });

  test("gives a member what it was owed, once and in order, and keeps it a member", async () => {
    const nc = await store2();
    const member = await sessionOf(await mintAnew("away"));
    expect(dotForm(member.me.principal)).toBe(dotForm(before.away.view.principal));
    expect(member.me.uid).not.toBe(before.away.view.uid);
    expect(await rowsOf(nc, member.me)).toEqual(before.memberships);
    await member.join("d1", { replay: false });
    const owed: InboxItem[] = await take(member, before.owed.length + 1);
    expect(texts(owed.filter(({ kind }) => kind === "chat"))).toEqual(before.owed);
    expect(texts(owed.filter(({ kind }) => kind === "dm"))).toEqual(["unread"]);
    const speaker = await sessionOf(await mintAnew("speaker"));
    await speaker.send("d1", "after the restore");
    expect(texts(await take(member, 1))).toEqual(["after the restore"]);
    await Promise.all([member.close(), speaker.close()]);
  });

  test("gives what was acknowledged above a copy that was not once more, with it, and nothing from below", async () => {
    const member = await sessionOf(await mintAnew("gap"));
    await member.join("d2", { replay: false });
    expect(texts(await take(member, GAP.length))).toEqual(GAP);
    await member.close();
  });

  test("W131.06 does not bring back who had ended: a new one of that name has an inbox of its own", async () => {
    const one = await sessionOf(await mintAnew("ended"));
    await one.listen();
    const info = await api(await store2(), `CONSUMER.INFO.DM_main.dm_${one.me.principal.owner}-ended-${one.me.uid}`);
    expect(info).toMatchObject({ num_pending: 0, delivered: { consumer_seq: 0 } });
    await one.close();
  });

  test("a second restore of that space is refused, and changes nothing", async () => {
    const held = await messagesOf(await store2());
    const again = await plane.run("restore", backup);
    expect(again).toMatchObject({ code: 1 });
    expect(again.err).toContain("already-exists");
    expect(await messagesOf(await store2())).toEqual(held);
  });
});

async function row(nc: NatsConnection, bucket: string, key: string): Promise<Record<string, unknown>> {
  const answer = await api(nc, `STREAM.MSG.GET.KV_cotal_${bucket}_main`, {
    last_by_subj: `$KV.cotal_${bucket}_main.${key}`,
  });
  const { data } = answer["message"] as { data: string };
  return JSON.parse(Buffer.from(data, "base64").toString()) as Record<string, unknown>;
}

describe("A.07 a backup that is not whole", () => {
  const damages: readonly [string, (copy: string) => void, string][] = [
    ["has no manifest", (copy) => rmSync(join(copy, "backup.json")), "no backup was finished there"],
    ["lacks a file", (copy) => rmSync(join(copy, "dm.jsonl")), "dm.jsonl is missing"],
    ["has one byte changed", (copy) => flip(join(copy, "chat.jsonl")), "chat.jsonl does not have the digest"],
    ["has another owner secret", (copy) => flip(join(copy, "owner.secret")), "owner.secret does not have the digest"],
    ["has a changed manifest", (copy) => change(join(copy, "backup.json")), "does not have the digest that it names"],
  ];

  test.each(damages)("is refused before anything is made: it %s", async (_, damage, words) => {
    const copy = mkdtempSync(join(folder, "copy-"));
    const state = join(copy, "state");
    await cp(backup, join(copy, "backup"));
    damage(join(copy, "backup"));
    const refused = await cli(["restore", join(copy, "backup"), "--state", state]);
    expect(refused.code).toBe(1);
    expect(refused.err).toContain(words);
    expect(existsSync(join(state, "trust"))).toBe(false);
  });

  test("a folder that holds anything is no place for a backup", async () => {
    const refused = await plane.run("backup", "main", backup);
    expect(refused.code).toBe(1);
    expect(refused.err).toContain("holds a backup already");
  });
});

function flip(path: string): void {
  const bytes = readFileSync(path);
  const at = Math.floor(bytes.length / 2);
  bytes[at] = (bytes[at] ?? 0) ^ 1;
  writeFileSync(path, bytes);
}

function change(path: string): void {
  writeFileSync(path, readFileSync(path, "utf8").replace('"groups": 1', '"groups": 2'));
}

async function cp(from: string, to: string): Promise<void> {
  const { cp: copy } = await import("node:fs/promises");
  await copy(from, to, { recursive: true });
}
