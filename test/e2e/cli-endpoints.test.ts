/** Commands of endpoints from the command line: what serves, what it takes, and calling it by that contract. */
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { connect } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { ownContract } from "../../shared/protocol/endpoint/own-contracts.ts";
import { type Item, type TestPlane, cli, endAll, eventually, matching, startPlane } from "../support/cli.ts";
import { type Foreign, NOTHING, startForeign } from "../support/foreign-endpoint.ts";

// Each test runs several real processes; a slow machine needs the room, none measures it.
vi.setConfig({ testTimeout: 120_000, hookTimeout: 120_000 });

let plane: TestPlane;
beforeAll(async () => {
  plane = await startPlane();
});
afterAll(async () => {
  await plane.stop();
  endAll();
});

async function refused(code: number, ...args: string[]): Promise<Item | undefined> {
  const ran = await plane.run(...args, "--json");
  expect({ args, code: ran.code, out: ran.out }).toMatchObject({ args, code });
  return ran.items().at(-1);
}

describe("what serves", () => {
  test("endpoints lists each instance as it registered, and of one name if one is given", async () => {
    const named = (items: readonly Item[]) => new Set(items.map(({ endpoint }) => endpoint));
    const found = await eventually(
      () => plane.json("endpoints"),
      (items) => named(items).has("provisioner") && named(items).has("auth"),
    );
    expect(found.find(({ endpoint }) => endpoint === "provisioner")).toMatchObject({
      kind: "endpoint",
      instanceId: matching(/^[a-z0-9]{26,32}$/),
      state: "ready",
      protocol: { v: 2 },
      clusterDigests: ownContract("provisioner").clusterDigests,
    });
    expect(named(await plane.json("endpoints", "auth"))).toEqual(new Set(["auth"]));
    expect(await plane.json("endpoints", "com.acme.none")).toEqual([]);
    expect((await plane.run("endpoints")).out).toMatch(/endpoint +state +epoch +instance/);
  });

  test("describe shows every command with its effect; of one command the schemas, verified", async () => {
    const [whole] = await plane.json("describe", "provisioner");
    expect(whole).toMatchObject({ kind: "descriptor", endpoint: "provisioner", protocol: { v: 2 } });
    const { commands } = ownContract("provisioner");
    expect(((whole?.["commands"] ?? []) as { name: string }[]).map(({ name }) => name).toSorted()).toEqual(
      [...commands.keys()].toSorted(),
    );
    const { commands: reads } = ownContract("delivery");
    const [one] = await plane.json("describe", "delivery", "roster");
    expect(one).toMatchObject({
      kind: "command",
      name: "roster",
      effect: "read",
      inputDigest: reads.get("roster")?.document.inputDigest,
      input: { schema: { properties: { limit: { maximum: 1000 } } } },
    });
    const text = (await plane.run("describe", "provisioner")).out;
    expect(text).toMatch(/mint +changes something/);
    expect((await plane.run("describe", "delivery")).out).toMatch(/roster +reads/);
  });

  test("what describe can't show is said with what to do", async () => {
    expect(await refused(3, "describe", "com.acme.none")).toMatchObject({
      code: "unavailable",
      message: matching(/com\.acme\.none/),
      next: matching(/cotal endpoints/),
    });
    expect(await refused(1, "describe", "provisioner", "nothing")).toMatchObject({ code: "not-found" });
    expect(await refused(2, "describe", "Not A Name")).toMatchObject({
      code: "bad-request",
      next: matching(/com\.acme/),
    });
  });
});

describe("call", () => {
  test("prints what the command answers, and who answered", async () => {
    const [answer] = await plane.json("call", "provisioner", "space");
    expect(answer).toMatchObject({
      kind: "answer",
      data: { settings: { space: "main" } },
      epoch: expect.any(Number) as number,
    });
    expect(JSON.parse((await plane.run("call", "provisioner", "space")).out)).toMatchObject({
      settings: { space: "main" },
    });
  });

  test("takes its arguments as JSON, from a file and from standard input", async () => {
    const folder = mkdtempSync(join(tmpdir(), "cotal-args-"));
    const file = join(folder, "args.json");
    const args = JSON.stringify({ change: { description: "from JSON" }, channel: "general" });
    writeFileSync(file, args);
    for (const given of [args, `@${file}`]) {
      const [answer] = await plane.json("call", "provisioner", "channel-set", "--args", given);
      expect(answer).toMatchObject({ data: { config: { description: "from JSON" } } });
    }
    const piped = ["call", "provisioner", "channel-set", "--args", "-", "--json", "--state", plane.state];
    const ran = await cli(piped, { input: args });
    expect(ran.items()[0]).toMatchObject({ data: { config: { description: "from JSON" } } });
    rmSync(folder, { recursive: true });
  });

  test("what is written wrongly is a matter of usage, and what it holds is not shown again", async () => {
    const secret = "a-secret-value";
    const [json, deadline, target] = await Promise.all([
      refused(2, "call", "provisioner", "space", "--args", `{"key":"${secret}`),
      refused(2, "call", "provisioner", "space", "--deadline", "soon"),
      refused(2, "call", "provisioner", "space", "--target", "somebody"),
    ]);
    expect(json).toMatchObject({ code: "bad-request", next: matching(/--args/) });
    expect(JSON.stringify(json)).not.toContain(secret);
    expect(deadline).toMatchObject({ message: matching(/15s/) });
    expect(target).toMatchObject({ next: matching(/cotal who/) });
  });

  test("arguments that do not fit are refused before anything is sent, and it says where", async () => {
    expect(await refused(1, "call", "delivery", "roster", "--args", '{"limit":"many"}')).toMatchObject({
      code: "bad-request",
      outcome: "not-executed",
      message: matching(/\/limit/),
      next: matching(/cotal describe/),
    });
  });

  test("W135.02: what the credential may not call is named with the subject that the broker refuses", async () => {
    const args = JSON.stringify({ channel: "general" });
    expect(await refused(1, "call", "delivery", "history", "--args", args)).toMatchObject({
      code: "permission-denied",
      outcome: "not-executed",
      message: matching(/\.ep\.one\.delivery\.history\./),
    });
    expect(await refused(1, "cast", "delivery", "history", "--args", args)).toMatchObject({
      code: "permission-denied",
    });
  });

  test("an agent lists, describes and calls what its profile holds", async () => {
    await plane.json("whoami", "--as", "scout");
    expect((await plane.json("endpoints", "--as", "scout")).length).toBeGreaterThan(0);
    expect(await plane.json("call", "provisioner", "space", "--as", "scout")).toHaveLength(1);
    expect(await refused(1, "call", "provisioner", "limits-show", "--as", "scout")).toMatchObject({
      code: "permission-denied",
      outcome: "not-executed",
    });
  });
});

describe("scatter, in a space that lets anybody ask", () => {
  let open: TestPlane;
  beforeAll(async () => {
    open = await startPlane("--open");
  });
  afterAll(() => open.stop());

  test("W135.07: every instance that is registered answers", async () => {
    const [answer, whole] = await open.json("scatter", "provisioner", "space");
    expect(answer).toMatchObject({ kind: "answer", ok: true, data: { settings: { space: "main" } } });
    expect(whole).toMatchObject({ kind: "scattered", complete: true, expected: 1, answers: 1 });
    expect((await open.run("scatter", "provisioner", "space")).out).toContain("1 of 1 answered");
  });

  test("W135.07: a registry that nobody reads out is failed-precondition; a call that nobody answers ends with 4", async () => {
    // It stands in the registry, and says nothing any more.
    for (const name of ["provisioner", "delivery"] as const) process.kill(open.pid(name), "SIGSTOP");
    const [scattered, called] = await Promise.all(
      ["scatter", "call"].map((verb) => open.run(verb, "provisioner", "space", "--deadline", "800ms", "--json")),
    );
    for (const name of ["provisioner", "delivery"] as const) process.kill(open.pid(name), "SIGCONT");
    expect(scattered).toMatchObject({ code: 1, out: matching(/failed-precondition/) });
    expect(called?.code).toBe(4);
    expect(called?.items()).toMatchObject([{ kind: "error", code: "deadline-exceeded", outcome: "not-executed" }]);
  });

  test("W135.07: nobody of that name is registered: failed-precondition, and it says what to do", async () => {
    const ran = await open.run("scatter", "com.acme.none", "look", "--json");
    expect(ran.code).toBe(1);
    expect(ran.items()).toMatchObject([
      { kind: "error", code: "failed-precondition", next: matching(/cotal endpoints/) },
    ]);
  });

  test("a server that describes itself by another protocol version is not called", async () => {
    const nc = await connect({ servers: open.server });
    let stranger: Foreign | undefined;
    try {
      stranger = await startForeign({
        nc,
        space: "main",
        endpoint: "com.acme.later",
        commands: { describe: () => ({ protocol: { v: 3 } }), look: () => NOTHING },
      });
      const ran = await open.run("call", "com.acme.later", "look", "--json");
      expect(ran.code).toBe(1);
      expect(ran.items()).toMatchObject([{ code: "unsupported-version", outcome: "not-executed" }]);
      expect(stranger.received.map(({ subject }) => subject.command)).toEqual(["describe"]);
    } finally {
      await stranger?.stop();
      await nc.close();
    }
  });
});
