/**
 * Credentials that end: the server cuts the connection at the second its JWT names. A session whose
 * file was renewed comes back by itself; one whose file was not ends in a named state.
 */
import { renameSync, writeFileSync } from "node:fs";
import { type Socket, connect as dial, createServer } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { NO_COMMANDS } from "../../shared/grants/client-profiles.ts";
import { Account } from "../../shared/grants/row.ts";
import { formatCreds } from "../../shared/trust/creds.ts";
import { mintUser } from "../../shared/trust/jwt.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { accountKeys } from "../support/holders.ts";
import { type Sessions, sessionsOf, take, texts } from "../support/sessions.ts";
import { type Minted, type TestSpace, startSpace } from "../support/space.ts";
import { until } from "../support/until.ts";
import { sleep } from "../support/vitals.ts";

let space: TestSpace;
let sessions: Sessions;
let door: Door;
beforeAll(async () => {
  space = await startSpace();
  door = await openDoor(space.broker.port);
  sessions = sessionsOf({ url: door.url, mint: space.mint, spaces: space.spaces });
}, 60_000);
afterAll(async () => {
  await sessions.closeAll();
  door.close();
  await space.stop();
});

/** A way to the broker that counts who comes. */
type Door = { readonly url: string; readonly dials: () => number; readonly close: () => void };

async function openDoor(port: number): Promise<Door> {
  const open = new Set<Socket>();
  let dials = 0;
  const server = createServer((near) => {
    dials += 1;
    const far = dial(port, "127.0.0.1");
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      open.add(from);
      from.pipe(to);
      from.on("error", () => to.destroy());
      from.on("close", () => {
        open.delete(from);
        to.destroy();
      });
    }
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  return {
    url: `nats://127.0.0.1:${typeof address === "object" && address !== null ? address.port : 0}`,
    dials: () => dials,
    close: () => {
      server.close();
      for (const socket of open) socket.destroy();
    },
  };
}

/** Another credential of the same lifecycle, as the provisioner would sign it, that lives so long. */
async function living(seconds: number, { view }: Minted): Promise<string> {
  const key = newKey("user");
  const { jwt } = await mintUser({
    profile: "agent",
    account: Account.Front,
    ...accountKeys(space, "main", Account.Front),
    userKey: key.publicKey,
    expires: Math.floor(Date.now() / 1000) + seconds,
    limits: { subs: 1000, payload: 262_144 },
    scope: {
      space: "main",
      holder: { principal: view.principal, uid: view.uid },
      inboxNonce: view.inboxNonce,
      allowSubscribe: view.allowSubscribe,
      allowPublish: view.allowPublish,
      ...NO_COMMANDS,
    },
  });
  return formatCreds(jwt, key);
}

const fileOf = (actor: string): string => join(space.state, `${actor}.creds`);
const mintFor = (actor: string): Promise<Minted> => space.mint({ actor, subscribe: ["general"], publish: ["general"] });
/** As the product's own default would have it, and not as fast as the other tests. */
const PATIENT = { reconnect: { kind: "endless" } } as const;

test("a session whose credential file is renewed in time goes on over two expiries, and loses no direct message", async () => {
  const alice = await sessions.minted({ actor: "alice" });
  const minted = await mintFor("bob");
  const file = fileOf("bob");
  writeFileSync(file, await living(5, minted));
  const before = door.dials();
  const bob = await sessions.own({ credentials: { kind: "static", file }, ...PATIENT });
  const { id, uid } = bob.me;
  const times = (type: string): number => bob.told.filter((event) => event.type === type).length;
  await bob.join("general");
  const shown: string[] = [];
  bob.onItem((item) => void shown.push(item.text));
  const sent: string[] = [];
  let going = true;
  const sending = (async () => {
    while (going) {
      const text = `m${sent.length}`;
      await alice.dm(id, text);
      sent.push(text);
      await sleep(50);
    }
  })();
  writeFileSync(file, await living(10, minted));
  await until("the first is over", () => times("up") === 1, 20_000);
  writeFileSync(file, await living(600, minted));
  await until("the second is over", () => times("up") === 2, 20_000);
  await bob.send("general", "still here");
  going = false;
  await sending;
  await until("all are shown", () => sent.every((text) => shown.includes(text)), 90_000);
  expect(shown.toSorted()).toEqual(sent.toSorted());
  expect(bob.me).toMatchObject({ id, uid });
  expect(bob.joined().map(({ channel }) => channel)).toEqual(["general"]);
  expect(times("down")).toBe(2);
  expect(times("closed")).toBe(0);
  expect(door.dials() - before).toBeLessThanOrEqual(5);
}, 150_000);

test("a session whose credential is not renewed ends in a named state without hammering, and its mail waits", async () => {
  const alice = await sessions.minted({ actor: "alice2" });
  const minted = await mintFor("carol");
  const before = door.dials();
  const carol = await sessions.own({ credentials: { kind: "static", text: await living(4, minted) }, ...PATIENT });
  const { id } = carol.me;
  const handling = carol.onItem(() => undefined);
  const cause = await carol.closed;
  expect(cause).toMatchObject({ code: "unauthenticated" });
  expect(cause?.next ?? "").not.toBe("");
  // The reader hears of it too, and not as an empty inbox.
  expect(await handling.ended).toMatchObject({ code: "unauthenticated" });
  await expect(carol.send("general", "after the end")).rejects.toMatchObject({
    code: "unavailable",
    outcome: "not-executed",
  });
  const dials = door.dials() - before;
  await sleep(5000);
  expect(door.dials() - before).toBe(dials);
  // A handful: the broker cuts, refuses three times, and a busy machine adds some.
  expect(dials).toBeLessThanOrEqual(10);
  await alice.dm(id, "for later");
  const again = await sessions.own({ credentials: { kind: "static", text: await living(600, minted) } });
  expect(texts(await take(again, 1))).toEqual(["for later"]);
}, 60_000);

test("a file that is away at the expiry and comes later brings the session back", async () => {
  const minted = await mintFor("dave");
  const file = fileOf("dave");
  writeFileSync(file, await living(4, minted));
  const before = door.dials();
  const dave = await sessions.own({ credentials: { kind: "static", file }, ...PATIENT });
  renameSync(file, `${file}.away`);
  await until("it says what is missing", () => dave.told.some(isAboutTheFile), 20_000);
  await sleep(3000);
  writeFileSync(file, await living(600, minted));
  await until("it is back", () => dave.told.some(({ type }) => type === "up"), 30_000);
  await dave.send("general", "back");
  expect(dave.told.filter(({ type }) => type === "closed")).toEqual([]);
  expect(door.dials() - before).toBeLessThanOrEqual(20);

  function isAboutTheFile(event: (typeof dave.told)[number]): boolean {
    return event.type === "refused" && event.error.code === "not-found";
  }
}, 90_000);
