/**
 * The duties of an endpoint and of a caller (§13.14, supplement K), each with the test that would miss it.
 *
 * The endpoint is the example as it stands, in a process of its own, in a space with credentials; the requests
 * are bytes that are put together here and sent under a caller's own credential; what was done is read from
 * the notes that the example keeps. Duties that need another server are held where their titles say so.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { frontRoot } from "../support/holders.ts";
import { type Probe, type Tap, createProber, publishOptions, tap } from "../support/probe.ts";
import { failure } from "../support/refusal.ts";
import { type Sessions, type TestSession, sessionsOf } from "../support/sessions.ts";
import { type Minted, type TestSpace, startSpace } from "../support/space.ts";
import { until } from "../support/until.ts";

const ENDPOINT = "com.example.echo";
const AT = "com_example_echo";

let space: TestSpace;
let sessions: Sessions;
let folder: string;
let echo: ChildProcess;
let instanceId: string;
let service: Minted;
let carol: Minted;
let dave: Minted;
let asks: TestSession;
let raw: NatsConnection;
let root: NatsConnection;
/** Everything that is published in the space's front account. */
let all: Tap;
let digests: Readonly<Record<string, { readonly inputDigest: string; readonly outputDigest: string }>>;
/** How the notes of the caller stand. */
let noted = 0;

async function startEcho(): Promise<void> {
  const program = join(import.meta.dirname, "..", "..", "examples", "echo-endpoint.ts");
  echo = spawn(process.execPath, [program, space.url, join(folder, "echo.creds")], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const [line] = (await once(echo.stdout ?? echo, "data")) as [Buffer];
  instanceId = /served as (\S+), epoch 1/.exec(line.toString())?.[1] ?? "";
}

beforeAll(async () => {
  space = await startSpace();
  sessions = sessionsOf(space);
  folder = mkdtempSync(join(tmpdir(), "cotal-conformance-"));
  service = await space.mint({ actor: "echo", capabilities: ["serve"] });
  writeFileSync(join(folder, "echo.creds"), service.text, { mode: 0o600 });
  await space.call("endpoint-assign", { endpoint: ENDPOINT, owner: "acme" });
  await startEcho();
  carol = await space.mint({ actor: "carol", capabilities: [ENDPOINT, `${ENDPOINT}@all`] });
  dave = await space.mint({ actor: "dave", owner: "other" });
  asks = await sessions.own({ credentials: { kind: "static", text: carol.text } });
  raw = await space.connect(carol);
  root = await frontRoot(space, "main");
  all = await tap(root, ">");
  const { descriptor } = await asks.endpoints.describe(ENDPOINT);
  digests = Object.fromEntries(
    descriptor.commands.map(({ name, inputDigest, outputDigest }) => [name, { inputDigest, outputDigest }]),
  );
}, 60_000);
beforeEach(() => {
  all.messages.length = 0;
});
afterAll(async () => {
  echo.kill("SIGKILL");
  await sessions.closeAll();
  await space.stop();
  rmSync(folder, { recursive: true, force: true });
});

const tripleOf = ({ view: { principal, uid } }: Minted): string => `${principal.owner}.${principal.actor}.${uid}`;
const nonceOf = (): string => `N_${randomBytes(16).toString("hex")}`;

/** The lawful request for one more note. */
const lawful = (): Record<string, unknown> => ({
  v: 1,
  id: `r-${nonceOf()}`,
  op: { endpoint: ENDPOINT, command: "note", ...digests["note"] },
  class: "ephemeral",
  replyExpected: true,
  args: { text: "noted" },
  from: { id: `${carol.view.principal.owner}.carol`, name: "carol" },
  deadlineMs: 5000,
});
const SUBJECT = `cotal.main.ep.one.${AT}.note.self`;

/** Sends a request as carol; the answer, or `undefined` after a while. */
async function sent(
  body: object,
  more: { readonly reply?: string; readonly headers?: Readonly<Record<string, string>> } = {},
) {
  const nonce = nonceOf();
  const reply = `cotal.main.ep.reply.${AT}.*.*.${tripleOf(carol)}.${nonce}`;
  const sub = raw.subscribe(reply, { max: 1 });
  raw.publish(`${SUBJECT}.${tripleOf(carol)}.${nonce}`, JSON.stringify(body), publishOptions(more));
  const timer = setTimeout(() => sub.unsubscribe(), 1000);
  let answer: { readonly subject: string; readonly body: Record<string, unknown> } | undefined;
  for await (const message of sub) answer = { subject: message.subject, body: message.json() };
  clearTimeout(timer);
  return { nonce, answer };
}

/** What the example has noted for carol, by one more note. */
async function expectNothingDone(): Promise<void> {
  const { data } = await asks.endpoints.call(ENDPOINT, "note", { text: "noted" }, { target: { mode: "self" } });
  noted += 1;
  expect((data as { readonly notes: readonly string[] }).notes).toEqual(Array.from({ length: noted }, () => "noted"));
}

describe("PI.07 an endpoint", () => {
  test("PI.07 W132.07 serves under a serve credential of its own, registered first, and not under its actor's", async () => {
    const listed = await asks.endpoints.endpoints(ENDPOINT);
    expect(listed).toMatchObject([{ endpoint: ENDPOINT, instanceId, epoch: 1, protocol: { v: 2 } }]);
    const prober = createProber(await space.connect(service));
    const rails = ["ep", "ep.v1"].flatMap((rail): Probe[] => [
      { op: "sub", subject: `cotal.main.${rail}.one.${AT}.say.>`, queue: AT },
      { op: "sub", subject: `cotal.main.${rail}.inst.${AT}.${instanceId}.say.>` },
      { op: "pub", subject: `cotal.main.ep.reply.${AT}.${instanceId}.1.${tripleOf(carol)}.${nonceOf()}` },
    ]);
    expect(await prober.refused(rails)).toEqual(rails);
  });

  test("PI.07 PA.10 describes itself to each caller by what the space says of that caller", async () => {
    const other = await sessions.own({ credentials: { kind: "static", text: dave.text } });
    expect((await asks.endpoints.describe(ENDPOINT)).descriptor.commands.map(({ name }) => name).toSorted()).toEqual([
      "note",
      "say",
    ]);
    expect((await other.endpoints.describe(ENDPOINT)).descriptor.commands).toEqual([]);
  });

  test("PI.07 W132.10 answers on the rail of the request's own subject, once, whatever reply target came with it", async () => {
    const { nonce, answer } = await sent(
      { ...lawful(), reply: "stolen.a", replyTo: "stolen.b" },
      { reply: "stolen.c" },
    );
    noted += 1;
    expect(answer?.body).toMatchObject({ ok: true });
    expect(answer?.subject).toBe(`cotal.main.ep.reply.${AT}.${instanceId}.1.${tripleOf(carol)}.${nonce}`);
    await until("the answer was seen", () => all.subjects().includes(answer?.subject ?? ""));
    await root.flush();
    expect(
      all
        .subjects()
        .filter((subject) => subject.startsWith("stolen") || subject.endsWith(nonce))
        .toSorted(),
    ).toEqual([`${SUBJECT}.${tripleOf(carol)}.${nonce}`, answer?.subject]);
    await expectNothingDone();
  });

  /** In the contract's order. */
  const faults: readonly { readonly what: string; readonly code: string; readonly wrong: () => object }[] = [
    { what: "version", code: "unsupported-version", wrong: () => ({ v: 2 }) },
    {
      what: "op",
      code: "op-mismatch",
      wrong: () => ({ op: { endpoint: ENDPOINT, command: "say", ...digests["note"] } }),
    },
    { what: "class", code: "class-mismatch", wrong: () => ({ class: "journal" }) },
    {
      what: "sender",
      code: "sender-mismatch",
      wrong: () => ({ from: { id: `${dave.view.principal.owner}.dave`, name: "dave" } }),
    },
    {
      what: "bind to another instance",
      code: "failed-precondition",
      wrong: () => ({ bind: { instanceId: "z".repeat(26), epoch: 1 } }),
    },
    { what: "bind to another epoch", code: "expired", wrong: () => ({ bind: { instanceId, epoch: 2 } }) },
    {
      what: "target",
      code: "target-mismatch",
      wrong: () => ({ target: { owner: carol.view.principal.owner, actor: "carol", lifecycleUid: carol.view.uid } }),
    },
    {
      what: "digests",
      code: "contract-mismatch",
      wrong: () => ({ op: { endpoint: ENDPOINT, command: "note", ...digests["say"] } }),
    },
    { what: "arguments", code: "bad-request", wrong: () => ({ args: { text: 7 } }) },
  ];

  test.each(faults.map((fault, at) => ({ ...fault, at })))(
    "PI.07 W133.02 $what: $code, alone and before all that is wrong after it, and nothing was done",
    async ({ at, code, wrong }) => {
      const after = Object.assign(
        {},
        ...faults
          .slice(at)
          .toReversed()
          .map((fault) => fault.wrong()),
      ) as object;
      for (const over of [wrong(), after]) {
        const { answer } = await sent({ ...lawful(), ...over });
        expect(answer?.body).toMatchObject({ ok: false, error: { code, outcome: "not-executed" } });
      }
      await expectNothingDone();
    },
  );

  test("PI.07 W133.12 discards a stored copy before anything of it is read: no answer, nothing done", async () => {
    const names = ["Nats-Stream", "nats-subject", "NATS-SEQUENCE", "Nats-Time-Stamp"];
    const heard = await Promise.all(names.map((name) => sent(lawful(), { headers: { [name]: "" } })));
    expect(heard.map(({ answer }) => answer)).toEqual(names.map(() => undefined));
    await expectNothingDone();
  });

  test("PI.07 W132.08 W133.11 takes the subject for the boundary: no other caller, mode or target can be asked for, and the body adds nothing", async () => {
    const prober = createProber(raw);
    const me = tripleOf(carol);
    const [owner = "", actor = "", uid = ""] = me.split(".");
    const other = tripleOf(dave);
    const wrong = [
      `${SUBJECT}.${other}`,
      `${SUBJECT}.${owner}.dave.${uid}`,
      `${SUBJECT}.${owner}.${actor}.${"z".repeat(26)}`,
      `cotal.main.ep.one.${AT}.note.${me}`,
      `cotal.main.ep.one.${AT}.note.any.${owner}.${me}`,
      `cotal.main.ep.one.${AT}.note.exact.${me}.${me}`,
      `cotal.main.ep.v1.one.${AT}.note.self.${me}.${"0".repeat(32)}`,
      `cotal.main.ep.inst.${AT}.${instanceId}.note.self.${me}`,
      `cotal.main.ep.reply.${AT}.${instanceId}.1.${me}`,
    ].flatMap((head): Probe[] => [
      { op: "pub", subject: `${head}.${nonceOf()}`, data: JSON.stringify(lawful()) },
      { op: "pub", subject: `${head}.x.${nonceOf()}`, data: JSON.stringify(lawful()) },
    ]);
    expect(await prober.refused(wrong)).toEqual(wrong);
    const { answer } = await sent({
      ...lawful(),
      caller: "admin",
      capabilities: ["admin"],
      auth: "everything",
      authz: "any",
    });
    noted += 1;
    expect(answer?.body).toMatchObject({ ok: true });
    await expectNothingDone();
  });
});

describe("PI.07 a caller", () => {
  const requests = () =>
    all.messages.filter(({ subject }) => /\.ep\.(?:one|all)\.com_example_echo\.(?:say|note)\./.test(subject));

  test("PI.07 W132.06 W133.02 asks as its own lifecycle, with ids and nonces in the grammar, the described digests and a deadline", async () => {
    for (const text of ["a", "b"]) await asks.endpoints.call(ENDPOINT, "say", { text });
    await until("both were seen", () => requests().length === 2);
    const nonces = requests().map(({ subject }) => subject.split(".").at(-1) ?? "");
    expect(nonces.map((nonce) => /^[A-Za-z0-9_-]{22,64}$/.test(nonce))).toEqual([true, true]);
    expect(new Set(nonces).size).toBe(2);
    const bodies = requests().map((message) => message.json<Record<string, unknown>>());
    expect(new Set(bodies.map(({ id }) => id)).size).toBe(2);
    for (const [at, body] of bodies.entries()) {
      expect(requests()[at]?.subject).toBe(`cotal.main.ep.one.${AT}.say.${tripleOf(carol)}.${nonces[at]}`);
      expect(body).toMatchObject({
        v: 1,
        id: expect.stringMatching(/^[A-Za-z0-9_-]{1,64}$/) as string,
        op: { endpoint: ENDPOINT, command: "say", ...digests["say"] },
        deadlineMs: expect.any(Number) as number,
        from: { id: `${carol.view.principal.owner}.carol` },
      });
    }
  });

  test("PI.07 W135.07 freezes whom a scatter is for, from the registry", async () => {
    const { answers, missing } = await asks.endpoints.scatter(ENDPOINT, "say", { text: "all" });
    expect(answers.map((one) => one.instanceId)).toEqual([instanceId]);
    expect(missing).toEqual([]);
  });

  test("PI.07 PA.02 never repeats a write of which it does not know: one request, and one note", async () => {
    echo.kill("SIGSTOP");
    const call = asks.endpoints.call(
      ENDPOINT,
      "note",
      { text: "noted" },
      { target: { mode: "self" }, retry: true, deadlineMs: 1500 },
    );
    expect(await failure(call)).toMatchObject({ code: "deadline-exceeded", outcome: "unknown" });
    expect(requests()).toHaveLength(1);
    echo.kill("SIGCONT");
    noted += 1;
    await expectNothingDone();
  });

  test("PI.07 W134.01 is told at once that nobody is there, and that nothing ran", async () => {
    // Who listens to everything would be somebody.
    all.stop();
    await root.flush();
    const ended = once(echo, "exit");
    echo.kill("SIGTERM");
    await ended;
    const call = asks.endpoints.call(ENDPOINT, "note", { text: "noted" }, { target: { mode: "self" } });
    expect(await failure(call)).toMatchObject({ code: "unavailable", outcome: "not-executed" });
  });
});
