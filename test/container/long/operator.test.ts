/**
 * An operator's day in containers: every command as `docs/operating` writes it, from a checkout of its own, and what
 * came of it as it shows from outside.
 *
 * The tests build on each other, in this order: one project, one life, and a second one after the wipe.
 */
import {
  appendFileSync,
  chownSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { afterAll, afterEach, beforeAll, expect, test, vi } from "vitest";
import { exchangeOnce } from "../../../cli/signin.ts";
import type { InboxItem } from "../../../shared/client/index.ts";
import type { Exchanged } from "../../../shared/client/exchange.ts";
import { ErrorCode } from "../../../shared/protocol/base/errors.ts";
import { FaceFile } from "../../../shared/protocol/endpoint/exchange-shapes.ts";
import { type Item, endAll, eventually } from "../../support/cli.ts";
import { agentsOf, expectDurable } from "../../support/agents.ts";
import { type Compose, composeProject } from "../../support/compose.ts";
import { blockWith, checkout, commandsOf, wordedIn } from "../../support/documented.ts";
import { freePort } from "../../support/nats-server.ts";
import { presentBearer, presentFile } from "../../support/presented.ts";
import { failure } from "../../support/refusal.ts";
import { take, texts } from "../../support/sessions.ts";
import { CHANNEL, NOTHING_LOST, compare, readBackIds, startTraffic } from "../../support/traffic.ts";

vi.setConfig({ testTimeout: 420_000, hookTimeout: 900_000 });

const DAEMONS = ["provisioner", "auth-plane", "auth-edge", "delivery"] as const;
/** However slow the machine is: nothing below measures time. */
const PATIENCE_MS = 180_000;
/** Of whom the containers are; the folder of backups has to be theirs. */
const CONTAINER_UID = 1000;
/** Between two posts of a sender: enough of them in the time that a container takes. */
const PAUSE_MS = 20;
/** Of its own: it is built twice. */
const IMAGE = "cotal:test-operator";
const OFFICE = "office";

const UP = wordedIn("operating.md", "docker compose up -d --wait");
const DOCTOR = wordedIn("operating.md", "docker compose run --rm --no-deps cli doctor");
const WIPE = wordedIn("operating/backup.md", "docker compose down --volumes");

const outside = mkdtempSync(join(tmpdir(), "cotal-operator-"));
const backups = join(outside, "backups");
const place = checkout();
let project: Compose;
const agents = agentsOf(() => project);

beforeAll(async () => {
  mkdirSync(backups);
  if (process.getuid?.() === 0) chownSync(backups, CONTAINER_UID, CONTAINER_UID);
  // One port for the loopback exchange, as the range of the documentation gives to one edge: a restart keeps it.
  const settings = { COTAL_IMAGE: IMAGE, COTAL_FACE_PORTS: String(await freePort()) };
  project = await composeProject({ root: place.root, settings });
});
// Two sessions of one name share its copies.
afterEach(() => agents.closeAll());
afterAll(async () => {
  endAll();
  await project?.down();
  rmSync(outside, { recursive: true, force: true });
  place.remove();
});

/** Runs what a page says, with this machine's places in it. */
const run = (commands: string, ends = 0): Promise<string> =>
  project.shell(
    commands.replaceAll("/backups:", `${backups}:`).replaceAll("nats://127.0.0.1:4222", project.server),
    ends,
  );

/** What opened the space at one moment: copies of it, whatever becomes of the desk. */
type Opening = { readonly desk: string; readonly file: string; readonly bearer: Exchanged };

async function openingOf(name: string): Promise<Opening> {
  const desk = join(outside, name);
  cpSync(project.state, desk, { recursive: true });
  const bearer = await exchangeOnce({ state: project.state, space: "main" }, "keeper");
  return { desk, file: join(desk, "spaces", "main", "operator", "operator.creds"), bearer };
}

/** Copies by member and tier, such as `away durable`. */
type Owed = Readonly<Record<string, number>>;
type Picture = { readonly pending: Owed; readonly [part: string]: unknown };

/** Exactly what the operator can ask about a space, without what a moment changes. */
async function pictureOf(): Promise<Picture> {
  const { json } = project;
  const still = (items: readonly Item[]): string[] =>
    items.map((item) => JSON.stringify(item, (key, value: unknown) => (VOLATILE.has(key) ? undefined : value)));
  return {
    limits: await json("limits", "show"),
    channels: await json("channels", "--as", "keeper"),
    history: still(await json("history", OFFICE, "--limit", "1000", "--as", "keeper")),
    traffic: (await json("history", CHANNEL, "--limit", "100000", "--as", "keeper")).map(({ id }) => id),
    // A role's queue is read again once somebody holds it: what waits there, its holder shows.
    pending: Object.fromEntries(
      (await json("pending", "--all")).filter(({ kind }) => kind === "pending").flatMap(owedTo),
    ),
    revoked: (await json("actor", "list")).filter(({ state }) => state === "revoked").map(({ principal }) => principal),
  };
}
/** What waits for a member and what it has been handed, which a restore hands out again. */
function owedTo({ name, tiers }: Item): [string, number][] {
  const all = tiers as readonly { readonly tier: string; readonly waiting: number; readonly handed: number }[];
  return all.map(({ tier, waiting, handed }) => [`${String(name)} ${tier}`, waiting + handed]);
}

/**
 * The picture after a restore, without what a backup does not promise: a member whose connection was cut while it read, as
 * of the tests before were, has acknowledged above a copy that it has not, and is owed more again. Less it never is, and
 * who left in order is owed exactly what he was.
 */
function promised(found: Picture, before: Picture): Picture {
  const least = ([name, copies]: [string, number]): [string, number] =>
    name === AWAY ? [name, copies] : [name, Math.min(copies, before.pending[name] ?? copies)];
  return { ...found, pending: Object.fromEntries(Object.entries(found.pending).map(least)) };
}

const AWAY = "away durable";

/** Is the one who is away owed so many copies? */
const owes =
  (copies: number) =>
  ({ pending }: Picture): boolean =>
    pending[AWAY] === copies;

/** Lifecycles, and when something was stored or handed out: a restore makes them anew. */
const VOLATILE: ReadonlySet<string> = new Set([
  "uid",
  "lifecycleUid",
  "oldestAt",
  "deliveredAt",
  "settledAt",
  "storedAt",
]);

test("A.05 the first command brings it up, the next lines act in it from outside, and the doctor finds nothing", async () => {
  await run(UP);
  await run(blockWith("operating.md", "export COTAL_STATE"));
  expect(await project.json("history", "general", "--as", "bob")).toMatchObject([{ from: { name: "alice" } }]);
  await run(DOCTOR);
});

test("A.07 keys are rotated under traffic: nobody is interrupted, and what the former keys signed is refused then", async () => {
  // Of a sender and of a member the last thousand are kept otherwise: here all are counted.
  for (const store of ["chat", "delivery"]) await project.json("limits", "set", store, "--count", "none");
  const former = await openingOf("before-rotation");
  await presentFile(project.server, former.file);
  await presentBearer(project.server, former.bearer);
  const member = await agents.as("member");
  const before = await readBackIds(member);
  const traffic = await startTraffic([await agents.as("sender_a"), await agents.as("sender_b")], member, PAUSE_MS);
  await traffic.more(20);
  for (const command of commandsOf(blockWith("operating/rotate.md", "spaces cotal keys rotate"))) {
    await run(command);
    await traffic.more(20);
  }
  const counted = await traffic.settle(() => readBackIds(member, before));
  expect(compare(counted)).toMatchObject(NOTHING_LOST);
  expect(await failure(presentFile(project.server, former.file))).toMatchObject({ code: ErrorCode.Unauthenticated });
  expect(await failure(presentBearer(project.server, former.bearer))).toMatchObject({
    code: ErrorCode.Unauthenticated,
  });
  await presentFile(project.server, (await openingOf("after-rotation")).file);
  await run(DOCTOR);
});

test("A.03 a new version takes the place of the old one, daemon by daemon, under traffic: nothing is lost", async () => {
  const image = async (): Promise<string[]> =>
    (await project.containers())
      .filter((one) => DAEMONS.some((name) => name === one.Config.Labels["com.docker.compose.service"]))
      .map(({ Image }) => Image);
  const [old] = await image();
  const broker = await madeAt("broker");
  const member = await agents.as("member");
  const before = await readBackIds(member);
  const traffic = await startTraffic([await agents.as("sender_a"), await agents.as("sender_b")], member, PAUSE_MS);
  await traffic.more(20);
  appendFileSync(join(place.root, "shared", "protocol", "base", "errors.ts"), "\n// A newer version.\n");
  for (const command of commandsOf(blockWith("operating/upgrade.md", "docker compose build"))) {
    await run(command);
    await traffic.more(20);
  }
  const counted = await traffic.settle(() => readBackIds(member, before));
  expect(compare(counted)).toMatchObject(NOTHING_LOST);
  const after = await image();
  expect(new Set(after).size).toBe(1);
  expect(after).toHaveLength(DAEMONS.length);
  expect(after[0]).not.toBe(old);
  // Every daemon was made anew once, and the broker was not; what is run from a timer leaves both as they are.
  expect(await madeAt("broker")).toEqual(broker);
  const made = await Promise.all(DAEMONS.map(madeAt));
  await run(wordedIn("operating/upgrade.md", "docker compose up -d --no-recreate"));
  expect(await Promise.all(DAEMONS.map(madeAt))).toEqual(made);
  expect(await madeAt("broker")).toEqual(broker);
  await run(DOCTOR);
});

/** When the containers of a service were made, and started last. */
const madeAt = async (service: string): Promise<readonly string[]> =>
  (await project.of(service)).map(({ Id, State }) => `${Id} ${State.StartedAt}`);

let picture: Awaited<ReturnType<typeof pictureOf>>;
let former: Opening;
let trustBefore: string;

/** The operator and the system account, as every server is told them. */
const trustOf = (): Promise<string> => project.compose("exec", "-T", "broker", "cat", "/etc/nats/trust/operator.conf");

test("A.07 a space is backed up while it is served, and nothing was restarted or logged an error until then", async () => {
  // Whoever comes back is shown what is owed, and nothing again.
  await project.json("channel", "set", OFFICE, "--replay", "off", "--description", "what everybody reads");
  const away = await agents.as("away");
  await project.json("actor", "grant", "worker", "--role", "work");
  const worker = await agents.as("worker", "work");
  await expectDurable(away, OFFICE);
  await worker.listen();
  await project.json("send", OFFICE, "shown", "--as", "keeper");
  expect(texts(await take(away, 1))).toEqual(["shown"]);
  expect(owes(0)(await eventually(pictureOf, owes(0), PATIENCE_MS))).toBe(true);
  await worker.close();
  await away.close();
  await project.json("limits", "set", "dm", "--age", "7d");
  for (let n = 0; n < 5; n += 1) await project.json("send", OFFICE, `away ${n}`, "--as", "keeper");
  await project.json("dm", away.me.id, "unread", "--as", "keeper");
  await project.json("ask", "work", "waits", "--as", "keeper");
  await project.json("whoami", "--as", "gone");
  await project.json("actor", "revoke", "gone");
  former = await openingOf("before-wipe");
  trustBefore = await trustOf();
  picture = await eventually(pictureOf, owes(5), PATIENCE_MS);
  expect(owes(5)(picture)).toBe(true);
  await run(blockWith("operating/backup.md", "spaces cotal backup"));
  const all = await project.containers();
  expect(all.filter(({ RestartCount, State }) => RestartCount > 0 || State.OOMKilled)).toEqual([]);
  expect(await project.errors()).toEqual([]);
});

test("W9.02 A.07 wiped and restored: every message, membership, limit and pending delivery is there, under new trust", async () => {
  await presentFile(project.server, former.file);
  await presentBearer(project.server, former.bearer);
  await run(WIPE);
  for (const command of commandsOf(blockWith("operating/backup.md", "spaces cotal restore"))) {
    // The page says so: no daemon runs yet.
    await run(command, command.includes("cotal restore") ? 3 : 0);
  }
  await run(wordedIn("operating/backup.md", "deploy/desk"));
  const found = await eventually(
    async () => promised(await pictureOf(), picture),
    (one) => isDeepStrictEqual(one, picture),
    PATIENCE_MS,
  );
  expect(found).toEqual(picture);
  expect(await trustOf()).not.toBe(trustBefore);
});

test("A.07 no credential of before the restore opens anything, and everybody goes on where they were", async () => {
  const { server, state } = project;
  const refused = { code: ErrorCode.Unauthenticated };
  expect(await failure(presentFile(server, former.file))).toMatchObject(refused);
  expect(await failure(presentBearer(server, former.bearer))).toMatchObject(refused);
  const { sentinel } = await exchangeOnce({ state, space: "main" }, "keeper");
  expect(await failure(presentBearer(server, { ...former.bearer, sentinel }))).toMatchObject(refused);
  // The exchange as it is published now, with the capability of before.
  const face = join("run", "exchange-main.json");
  const faceOf = (desk: string): FaceFile => FaceFile.parse(JSON.parse(readFileSync(join(desk, face), "utf8")));
  writeFileSync(join(former.desk, face), JSON.stringify({ ...faceOf(former.desk), url: faceOf(state).url }));
  await expect(exchangeOnce({ state: former.desk, space: "main" }, "keeper")).rejects.toMatchObject(refused);
  await expect(project.json("whoami", "--as", "gone")).rejects.toThrow(/revoked/);
  const away = await agents.as("away");
  await expectDurable(away, OFFICE);
  const found: InboxItem[] = await take(away, 6);
  expect(texts(found).toSorted()).toEqual(["away 0", "away 1", "away 2", "away 3", "away 4", "unread"]);
  const worker = await agents.as("worker", "work");
  expect(texts(await take(worker, 1))).toEqual(["waits"]);
  await run(DOCTOR);
});

test("A.05 no container was started again by itself since, and none logged an error", async () => {
  const all = await project.containers();
  expect(all.filter(({ RestartCount, State }) => RestartCount > 0 || State.OOMKilled)).toEqual([]);
  expect(await project.errors()).toEqual([]);
});
