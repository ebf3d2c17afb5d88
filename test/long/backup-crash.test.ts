/** A backup or a restore that dies half way: the one leaves a folder that is refused, the other is run again. */
import { randomBytes } from "node:crypto";
import { execFile } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openConnection } from "../../shared/broker/connect.ts";
import { streamState } from "../../shared/broker/ensure.ts";
import { beginFolder, verifyFolder } from "../../shared/backup/folder.ts";
import type { Manifest } from "../../shared/backup/format.ts";
import { backUp } from "../../shared/backup/read-space.ts";
import { restoreSpace } from "../../shared/backup/restore-space.ts";
import { inboxPrefix } from "../../shared/protocol/base/broker-subjects.ts";
import { readCredsFile } from "../../shared/trust/creds.ts";
import { ProvisionerFile, createPrivate, trustPaths } from "../../shared/trust/folder.ts";
import { endRestore } from "../../services/trust/keepers.ts";
import { startDeliveryService } from "../support/delivery-service.ts";
import { type TestBroker, startBroker } from "../support/nats-server.ts";
import { dump } from "../support/raw-jetstream.ts";
import { failure } from "../support/refusal.ts";
import { sessionsOf } from "../support/sessions.ts";
import { startSpace } from "../support/space.ts";
import { lookInto } from "../support/store-looker.ts";
import { markerOf } from "../support/stored-copies.ts";
import { until } from "../support/until.ts";

const ROOT = join(import.meta.dirname, "..", "..");
const folder = mkdtempSync(join(tmpdir(), "cotal-crash-"));
const state = join(folder, "state");
const whole = join(folder, "whole");
const PARTS = ["consumers", "members", "markers", "dlv", "chat", "dm", "task", "channels", "acl", "auth", "records"];

class Killed extends Error {}

let manifest: Manifest;
let broker: TestBroker;

const trust = async (command: string, ...args: string[]): Promise<Record<string, unknown>> => {
  const program = join(ROOT, "services", "trust", "main.ts");
  const run = promisify(execFile)(process.execPath, [program, command, "--state", state, ...args]);
  const { stdout } = await run.catch((thrown: unknown) => thrown as { stdout: string });
  return JSON.parse(stdout.trim().split("\n").at(-1) ?? "{}") as Record<string, unknown>;
};
const begin = () =>
  trust(
    "restore",
    "--space",
    "main",
    "--server",
    broker.url,
    "--folder",
    whole,
    "--auth",
    "static",
    "--digest",
    manifest.digest,
  );

async function expectKilled(run: Promise<unknown>): Promise<void> {
  const thrown: unknown = await run.then(
    () => undefined,
    (error: unknown) => error,
  );
  if (!(thrown instanceof Killed)) throw new Error("it was to die", { cause: thrown });
}

/** Fills what the last `begin` has made keys for, and dies at a step if one is named. */
async function fill(dieAt?: string): Promise<void> {
  const { creds, owner } = await begin();
  const credential = readCredsFile(String(creds));
  const connection = await openConnection({
    servers: [broker.url],
    authenticator: { jwt: () => credential.jwt, sign: credential.sign },
    inboxPrefix: inboxPrefix(credential.view.uid, credential.view.inboxNonce),
    name: "test restore",
    reconnect: { kind: "bounded", attempts: 1 },
  });
  try {
    await restoreSpace({
      nc: connection.nc,
      folder: whole,
      manifest,
      systemOwner: String(owner),
      replicas: 1,
      random: randomBytes,
      now: Date.now,
      onStep: (step) => {
        if (step === dieAt) throw new Killed(step);
      },
    });
  } finally {
    await connection.close();
  }
}

beforeAll(async () => {
  const space = await startSpace();
  const delivery = startDeliveryService(space);
  await delivery.ready();
  const store = await space.store();
  const sessions = sessionsOf(space);
  const lists = { subscribe: [">"], publish: [">"] };
  const from = await sessions.minted({ actor: "speaker", ...lists });
  const to = await sessions.minted({ actor: "member", ...lists });
  await to.join("d1");
  await to.close();
  let last = 0;
  for (let n = 0; n < 30; n += 1) last = (await from.send("d1", `post ${n}`)).seq;
  await from.dm(`${to.me.principal.owner}.member`, "unread");
  await from.ask("work", "waits");
  await until("fanned out", async () => ((await markerOf(store))?.sequence ?? 0) >= last);
  const take = async (at: string, dieAt?: string): Promise<Manifest> => {
    beginFolder(at);
    createPrivate(join(at, "owner.secret"), () =>
      createPrivate(join(trustPaths(space.state).provisioner("main"), ProvisionerFile.OwnerSecret), () => ""),
    );
    const onPart = (part: string): void => {
      if (part === dieAt) throw new Killed(part);
    };
    return backUp({ nc: store, space: "main", folder: at, brokerVersion: "test", now: Date.now, onPart });
  };
  manifest = await take(whole);
  for (const part of PARTS) await expectKilled(take(join(folder, part), `${part}.jsonl`));
  await sessions.closeAll();
  await delivery.kill("SIGTERM");
  await space.stop();
  mkdirSync(state, { mode: 0o700 });
  broker = await startBroker({
    configFile: async (port) => String((await trust("init", "--host", "127.0.0.1", "--port", String(port)))["config"]),
  });
}, 240_000);
afterAll(async () => {
  await broker?.stop();
  rmSync(folder, { recursive: true, force: true });
});

describe("A.07 a backup that dies", () => {
  test.each(PARTS)("behind %s is torn, and refused as such", async (part) => {
    expect(await failure(verifyFolder(join(folder, part)))).toMatchObject({ code: "failed-precondition" });
  });

  test("holds as many lines as it says, and another one of the same space the same messages", async () => {
    expect(await verifyFolder(whole)).toEqual(manifest);
    expect(manifest.stores).toMatchObject({ chat: { messages: 30 }, dm: { messages: 1 }, task: { messages: 1 } });
    expect(manifest.stores.dlv.messages).toBe(30);
  });
});

describe("A.07 a restore that dies", () => {
  const steps = ["chat", "dm", "task", "dlv", "lifecycles ended", "enrolled anew"];

  test("at any step publishes nothing, and the next one begins anew, with a queue of its own again", async () => {
    const created = new Set<string>();
    for (const step of steps) {
      await expectKilled(fill(step));
      expect(await trust("space", "--space", "main", "--server", broker.url)).toMatchObject({
        kind: "error",
        message: expect.stringContaining("has not ended") as unknown,
      });
      const looking = await lookInto(state, broker.url);
      const task = await streamState(looking.nc, "TASK_main").catch(() => undefined);
      if (task !== undefined) created.add(task.created);
      await looking.close();
    }
    // From the step behind it on, each run has made the queue anew.
    expect(created.size).toBe(4);
  }, 120_000);

  test("W81.13 is refused while somebody is connected to the store", async () => {
    await begin();
    const looking = await lookInto(state, broker.url);
    expect(await failure(fill())).toMatchObject({
      code: "failed-precondition",
      message: "1 more are connected to the store of this space",
    });
    await looking.close();
  }, 30_000);

  test("behind its proof is not filled again: it is given to its daemons", async () => {
    await fill();
    const looking = await lookInto(state, broker.url);
    expect(await dump(looking.nc, "CHAT_main")).toHaveLength(30);
    endRestore(state, "main");
    expect(await begin()).toMatchObject({ phase: "proved" });
    expect(await dump(looking.nc, "CHAT_main")).toHaveLength(30);
    const published = await trust("restored", "--space", "main", "--server", broker.url, "--auth", "static");
    expect(published).toMatchObject({ kind: "space-trust" });
    expect(await begin()).toMatchObject({ kind: "error", code: "already-exists" });
    await looking.close();
  }, 60_000);

  test("whoever filled it is let in no more", async () => {
    const file = join(state, "spaces", "main", "operator", "restore.creds");
    const credential = readCredsFile(file);
    const refused = openConnection({
      servers: [broker.url],
      authenticator: { jwt: () => credential.jwt, sign: credential.sign },
      inboxPrefix: inboxPrefix(credential.view.uid, credential.view.inboxNonce),
      name: "test restore",
      reconnect: { kind: "bounded", attempts: 1 },
    });
    expect(await failure(refused)).toMatchObject({ code: "unauthenticated" });
  });
});
