/** Every daemon of a space that people sign in to is restarted, one after another, under traffic: an upgrade. */
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { resolveTarget } from "../../cli/target.ts";
import { userCredentials } from "../../cli/signin.ts";
import { type Session, connect } from "../../shared/client/index.ts";
import { type TestPlane, endAll, eventually, startPlane } from "../support/cli.ts";
import { lookInto } from "../support/store-looker.ts";
import { NOTHING_LOST, compare, startTraffic, storedIds } from "../support/traffic.ts";

vi.setConfig({ testTimeout: 600_000, hookTimeout: 240_000 });

const DAEMONS = ["provisioner", "auth", "delivery"] as const;
let plane: TestPlane;
const sessions: Session[] = [];

beforeAll(async () => {
  plane = await startPlane();
  // Of a sender and of a member the last thousand are kept otherwise: here all are counted.
  for (const store of ["chat", "delivery"]) await plane.json("limits", "set", store, "--count", "none");
});
afterAll(async () => {
  await Promise.all(sessions.map((session) => session.close()));
  await plane?.stop();
  endAll();
});

async function signedIn(actor: string): Promise<Session> {
  const credentials = userCredentials(resolveTarget({ state: plane.state }), actor);
  const reconnect = { kind: "endless", baseMs: 50, capMs: 500 } as const;
  const session = await connect({ servers: [plane.server], credentials, reconnect });
  sessions.push(session);
  return session;
}

test("A.03 a rolling restart of every daemon under load: sent = stored = shown, by id", async () => {
  const [a, b, member] = [await signedIn("sender_a"), await signedIn("sender_b"), await signedIn("member")];
  const traffic = await startTraffic([a, b], member);
  await traffic.more(50);
  for (const name of DAEMONS) {
    const before = plane.pid(name);
    process.kill(before, "SIGTERM");
    const after = await eventually(
      () => plane.pid(name),
      (pid) => pid > 0 && pid !== before,
      60_000,
    );
    expect(after).not.toBe(before);
    const status = await eventually(
      () => plane.run("status"),
      ({ out }) => new RegExp(`${name} +ok`).test(out),
      120_000,
    );
    expect(status.out).toMatch(new RegExp(`${name} +ok`));
    await traffic.more(30);
  }
  const looking = await lookInto(plane.state, plane.server);
  const counted = await traffic.settle(() => storedIds(looking.nc));
  await looking.close();
  // A broker that stays refuses nobody, whichever daemon is away.
  expect(counted.failed).toEqual([]);
  expect(compare(counted)).toEqual({ ...NOTHING_LOST, unfounded: [] });
  // And people sign in as before.
  expect((await plane.run("whoami", "--as", "newcomer")).code).toBe(0);
});
