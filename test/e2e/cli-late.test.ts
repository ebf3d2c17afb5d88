/**
 * A start that takes long says why (`waiting`): here a store that keeps the daemon from making what it needs, as it is
 * after somebody has put streams back under other names. Mended meanwhile, the same start goes through.
 */
import { jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { type TestPlane, endAll, startPlane } from "../support/cli.ts";

// Each test runs several real processes; a slow machine needs the room, none measures it.
vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 });

const WHY = "loop:space:main: create stream TASK_main: subjects overlap with an existing stream";
const OTHER = "TASK_of_old";

let plane: TestPlane;
beforeAll(async () => {
  plane = await startPlane("--open");
});
afterAll(async () => {
  await plane.stop();
  endAll();
});

async function streams<T>(change: (jsm: Awaited<ReturnType<typeof jetstreamManager>>) => Promise<T>): Promise<T> {
  const nc = await connect({ servers: plane.server });
  try {
    return await change(await jetstreamManager(nc));
  } finally {
    await nc.close();
  }
}

/** The plane, down, with another stream where the space's queue of requests has to be. */
async function obstructed(): Promise<void> {
  await streams(async (jsm) => {
    const { config } = await jsm.streams.info("TASK_main");
    await jsm.streams.delete("TASK_main");
    await jsm.streams.add({ name: OTHER, subjects: config.subjects });
  });
  await plane.run("down");
}

test("A.12 cotal up whose daemon can't serve yet says for whom it waits and why, and is ready once that is mended", async () => {
  await obstructed();
  const shown = plane.start("up");
  await shown.saying(`waiting for the provisioner: ${WHY}`, 60_000);
  expect(shown.out()).not.toContain("is ready");
  shown.process.kill("SIGINT");
  await shown.ended;
  // In the background and as objects: the same, beside the result.
  const up = plane.start("up", "--detach", "--json");
  await up.saying(`"kind":"waiting"`, 60_000);
  await streams((jsm) => jsm.streams.delete(OTHER));
  const { code, items, err } = await up.ended;
  expect(code).toBe(0);
  expect(items()).toMatchObject([{ kind: "ready" }]);
  const told = err.split("\n").filter((line) => line.startsWith("{"));
  expect(told.map((line) => JSON.parse(line) as unknown)).toContainEqual({
    kind: "waiting",
    child: "provisioner",
    why: WHY,
  });
});
