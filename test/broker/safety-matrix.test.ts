/**
 * Probes generated from the matrix: of every built profile and every row of it, what the row allows is
 * accepted by the live broker, and its neighbours (another owner, the same owner's other actor, another
 * lifecycle, a wildcard for each own token, one token more or less, another space, another role, another
 * queue) are refused.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Row } from "../../shared/grants/row.ts";
import { daemonCredential, freshHolder, frontRoot, personOf } from "../support/holders.ts";
import { ensureStreams, streamState } from "../../shared/broker/ensure.ts";
import { leaderLast } from "../../shared/broker/reads.ts";
import { transferStream } from "../../shared/broker/resources.ts";
import { jsApi, objectChunks, objectMeta } from "../../shared/protocol/base/broker-subjects.ts";
import { type Probe, createProber, tap } from "../support/probe.ts";
import { put } from "../support/raw-jetstream.ts";
import { echoHead, putHead } from "../support/heads.ts";
import {
  ACCOUNT,
  BUILT,
  EPOCH,
  HEX,
  type Held,
  LAB,
  MANAGER,
  SESSION,
  SPACE,
  filled,
  heldBy,
} from "../support/every-credential.ts";
import { type TestSpace, startSpace } from "../support/space.ts";
import { objectStream, transferBucket, transferObject } from "../../shared/protocol/base/names.ts";
import { type Person, dash } from "./expected/kit.ts";
import { until } from "../support/until.ts";

let space: TestSpace;
let sibling: Person;
let stranger: Person;

beforeAll(async () => {
  space = await startSpace({ spaces: [SPACE, LAB] });
  await putHead(space, echoHead);
  sibling = personOf(await space.mint({ actor: "sibling", role: "reviewer", subscribe: ["general"] }));
  stranger = personOf(await space.mint({ actor: "stranger", owner: "others", role: "other", subscribe: ["general"] }));
}, 60_000);

afterAll(() => space.stop());

/** What the row allows, with a token for each wildcard. */
function sample(row: Row): Probe {
  return row.op === "pub" ? { op: "pub", subject: filled(row.subject) } : row;
}

/** Subjects beside a row's own. */
function neighbours(row: Row, { me, space: at }: Held): Probe[] {
  const base = row.op === "pub" ? filled(row.subject) : row.subject;
  const tokens = base.split(".");
  const out: string[] = [];
  for (const [index, token] of tokens.entries()) {
    for (const other of others(token, me, at)) out.push(tokens.with(index, other).join("."));
  }
  const ownTail = row.subject.split(".").at(-1);
  if (ownTail !== ">" && !(row.op === "sub" && ownTail === "*")) out.push(`${base}.x`);
  if (tokens.length > 2) out.push(tokens.slice(0, -1).join("."));
  if (row.op === "sub")
    for (let keep = 1; keep < tokens.length - 1; keep += 1) out.push([...tokens.slice(0, keep), ">"].join("."));
  const queue = row.op === "sub" && row.queue !== undefined ? { queue: row.queue } : {};
  const probes = out.map((subject): Probe =>
    row.op === "pub" ? { op: "pub", subject } : { op: "sub", subject, ...queue },
  );
  if (row.op === "sub" && row.queue !== undefined) {
    probes.push(
      { op: "sub", subject: base },
      { op: "sub", subject: base, queue: "other" },
      { op: "sub", subject: base, queue: `${row.queue}.x` },
    );
  }
  return probes;
}

/** What else could stand in a token that carries something of the holder's own. */
function others(token: string, me: Person, at: string): string[] {
  const elsewhere = at === SPACE ? LAB : SPACE;
  const out: string[] = [];
  if (token === at) out.push(elsewhere, "*");
  if (token.endsWith(`_${at}`)) out.push(`${token.slice(0, -at.length)}${elsewhere}`, "*");
  if (token === me.owner) out.push(stranger.owner, "*");
  if (token === me.actor) out.push(sibling.actor, stranger.actor, "*");
  if (token === me.uid) out.push(sibling.uid, stranger.uid, "*");
  if (token.includes(me.connId)) out.push(`_INBOX_${stranger.connId}`, `_INBOX_${me.uid}_${"n".repeat(26)}`, "*");
  if (token.includes(dash(me))) {
    const kind = token.slice(0, token.indexOf("_"));
    out.push(
      `${kind}_${dash(sibling)}`,
      `${kind}_${dash(stranger)}`,
      `${kind}_${dash({ ...me, uid: stranger.uid })}`,
      "*",
    );
  }
  if (token === "reviewer") out.push("other", "*");
  if (token === "svc_reviewer") out.push("svc_other", "*");
  if (token === "general") out.push("secret", "*");
  if (token === "com_example_echo") out.push("com_example_job", "provisioner", "*");
  if (token === "say") out.push("log", "stop", "*");
  if (token === "stop") out.push("say", "*");
  if (token === "self") out.push("any", "child", "*");
  if (token === "all") out.push("v1", "*");
  for (const [named, other] of Object.entries({
    [MANAGER]: "o".repeat(26),
    [SESSION]: "t".repeat(26),
    [HEX]: "cd".repeat(32),
    [ACCOUNT]: `A${"G".repeat(55)}`,
  })) {
    if (token.includes(named)) out.push(token.replace(named, other), "*");
  }
  if (token === transferObject(HEX)) out.push(transferObject("cd".repeat(32)), "*");
  if (token === String(EPOCH)) out.push(String(EPOCH - 1), "*");
  return out;
}

/** Does an entry of the same side allow it? NATS's own rule, with its leak at a final `*`. */
function allows(entry: string, subject: string): boolean {
  const [want, have] = [entry.split("."), subject.split(".")];
  for (const [index, token] of want.entries()) {
    if (token === ">") return have.length > index;
    if (have[index] === undefined) return false;
    if (have[index] === ">") return token === "*" && index === want.length - 1;
    if (token !== "*" && token !== have[index]) return false;
  }
  return want.length === have.length;
}

function isAllowed(probe: Probe, rows: readonly Row[]): boolean {
  return rows.some(
    (row) =>
      row.op === probe.op &&
      (row.op === "pub" || row.queue === undefined || (probe.op === "sub" && row.queue === probe.queue)) &&
      allows(row.subject, probe.subject),
  );
}

describe("W2.07 W3.07 W9.05 W9.07 W9.08 W9.09 W9.11 W9.12 W9.14 W9.15 PF.01 rows of the matrix at a live broker", () => {
  test.each(BUILT)("%s: every row is accepted, every neighbour refused", async (profile) => {
    for (const one of await heldBy(space, profile)) {
      const prober = createProber(await space.connect(one.credential));
      expect(await prober.refused(one.rows.map(sample))).toEqual([]);
      const probes = one.rows.flatMap((row) => neighbours(row, one)).filter((probe) => !isAllowed(probe, one.rows));
      const refused = new Set(await prober.refused(probes));
      expect(probes.filter((probe) => !refused.has(probe))).toEqual([]);
      expect(probes.length).toBeGreaterThanOrEqual(one.rows.length * 2);
    }
  });
});

describe("W9.15 W9.17 W132.11 PF.01 H16 the exact arity of what ends in *", () => {
  test.each(["agent", "observer", "operator"] as const)(
    "%s: a subscription that ends in > in its place hears nothing deeper",
    async (profile) => {
      const [one] = await heldBy(space, profile);
      if (one === undefined) throw new Error("no credential");
      const nc = await space.connect(one.credential);
      const root = await frontRoot(space, SPACE);
      const open = one.rows.filter((row) => row.op === "sub" && row.subject.endsWith(".*"));
      expect(open.length).toBeGreaterThan(0);
      for (const row of open) {
        const exact = await tap(nc, row.subject);
        const wide = await tap(nc, `${row.subject.slice(0, -1)}>`);
        const subject = filled(row.subject);
        for (const tail of [".x", ".x.y", ""]) root.publish(`${subject}${tail}`, tail);
        await until("the lawful one arrived", () => exact.messages.length > 0);
        expect([...exact.subjects(), ...wide.subjects()].filter((heard) => heard !== subject)).toEqual([]);
        exact.stop();
        wide.stop();
      }
    },
  );
});

describe("W9.09 W10.18 an upload of a transcript", () => {
  const bucket = transferBucket(SPACE, MANAGER);
  const stream = objectStream(bucket);
  const chunks = objectChunks(bucket, HEX);
  const meta = objectMeta(bucket, transferObject(HEX));
  const other = objectChunks(bucket, "cd".repeat(32));

  async function writer() {
    const scope = { ...freshHolder(`u_${"d".repeat(26)}`, "sender"), space: SPACE };
    const transferWriter = { instanceId: MANAGER, hex: HEX };
    return space.connect(await daemonCredential(space, "transfer-writer", "front", { ...scope, transferWriter }));
  }

  beforeAll(async () => {
    const store = await space.store();
    await ensureStreams(store, [transferStream(SPACE, MANAGER, { replicas: 1 })]);
    await put(store, other, "somebody else's");
  });

  test("its chain of chunks and its record reach the bucket in the store; each is acknowledged, a fork is not", async () => {
    const nc = await writer();
    const chunk = (data: string, last: number) =>
      put(nc, chunks, data, { "Nats-Expected-Last-Subject-Sequence": String(last) });
    const first = await chunk("one", 0);
    expect(first).toMatchObject({ stream, seq: expect.any(Number) as number });
    const second = await chunk("two", Number(first["seq"]));
    expect(second).toMatchObject({ stream });
    expect((await chunk("again", 0)).error).toMatchObject({ err_code: 10_071 });
    expect(await put(nc, meta, "{}", { "Nats-Rollup": "sub" })).toMatchObject({ stream });
    const store = await space.store();
    const [kept, record] = await Promise.all([leaderLast(store, stream, chunks), leaderLast(store, stream, meta)]);
    expect([kept, record].map((one) => new TextDecoder().decode(one?.data))).toEqual(["two", "{}"]);
    expect(await leaderLast(store, stream, other)).toBeDefined();
  });

  test("it reads nothing back, and reaches no other object, bucket or request of the store", async () => {
    const nc = await writer();
    const elsewhere = transferBucket(SPACE, "o".repeat(26));
    const asked: Probe[] = [
      other,
      objectChunks(elsewhere, HEX),
      objectMeta(bucket, transferObject("cd".repeat(32))),
      jsApi.info,
      jsApi.streamInfo(stream),
      jsApi.streamPurge(stream),
      jsApi.messageGet(stream),
      jsApi.directGet(stream),
      jsApi.directGetLast(stream, chunks),
      jsApi.directGetLast(stream, meta),
      jsApi.consumerCreateBare(stream),
    ].map((subject) => ({ op: "pub", subject }));
    const heard: Probe[] = [chunks, meta, other].map((subject) => ({ op: "sub", subject }));
    const prober = createProber(nc);
    expect(await prober.refused([...asked, ...heard])).toEqual([...asked, ...heard]);
  });

  test("W9.19 its acknowledgement lands nowhere in the store, wherever it is aimed", async () => {
    const nc = await writer();
    const store = await space.store();
    const aims = [
      jsApi.streamPurge(`CHAT_${SPACE}`),
      jsApi.streamDelete(stream),
      `$KV.cotal_acl_${SPACE}.planted`,
      other,
      meta,
    ];
    await put(store, `cotal.${SPACE}.chat.${stranger.owner}.${stranger.actor}.general`, "kept");
    const held = (): Promise<unknown> =>
      Promise.all(
        [`CHAT_${SPACE}`, `KV_cotal_acl_${SPACE}`].map(async (one) => {
          const { messages, lastSeq } = await streamState(store, one);
          return { messages, lastSeq };
        }),
      );
    const before = await held();
    const last = await leaderLast(store, stream, other);
    const commits = await leaderLast(store, stream, meta);
    for (const reply of aims) nc.publish(chunks, "aimed", { reply });
    const end = await put(nc, chunks, "end");
    expect(end).toMatchObject({ stream });
    expect(await held()).toEqual(before);
    expect([await leaderLast(store, stream, other), await leaderLast(store, stream, meta)]).toEqual([last, commits]);
  });

  test("what stays open: its record may carry a rollup of the whole bucket, which the stock layout allows", async () => {
    const nc = await writer();
    const store = await space.store();
    expect(await leaderLast(store, stream, other)).toBeDefined();
    expect(await put(nc, meta, "{}", { "Nats-Rollup": "all" })).toMatchObject({ stream });
    expect(await leaderLast(store, stream, other)).toBeUndefined();
  });
});

describe("H30 the one wildcard endpoint of a client's grant", () => {
  test("is describe, on the class rail, as oneself; every other command names its endpoint", async () => {
    const credential = await space.mint({ actor: "asker", subscribe: ["general"] });
    const me = personOf(credential);
    const prober = createProber(await space.connect(credential));
    const call = (rail: string, endpoint: string, command: string, who: Person, more = ""): Probe => ({
      op: "pub",
      subject: `cotal.${SPACE}.ep.${rail}.${endpoint}.${command}.${who.owner}.${who.actor}.${who.uid}.${"n".repeat(26)}${more}`,
    });
    const asked = ["provisioner", "auth", "anything", "com_example_x"].map((endpoint) =>
      call("one", endpoint, "describe", me),
    );
    expect(await prober.refused(asked)).toEqual([]);
    const wrong = [
      ...["space", "mint", "cancel", "lease", "commit", "resume"].map((command) =>
        call("one", "anything", command, me),
      ),
      ...["all", `inst.${me.uid}`, "v1.one"].map((rail) => call(rail, "anything", "describe", me)),
      ...[sibling, stranger, { ...me, uid: stranger.uid }].map((who) => call("one", "anything", "describe", who)),
      call("one", "a.b", "describe", me),
      call("one", "anything", "describe", me, ".x"),
    ];
    expect(await prober.refused(wrong)).toEqual(wrong);
  });
});
