/** The example and the README's program run as they stand, in processes of their own. */
import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { type TestPlane, startPlane, textsOf } from "../support/cli.ts";
import { type Sessions, sessionsOf, take } from "../support/sessions.ts";
import { type TestSpace, startSpace } from "../support/space.ts";

let space: TestSpace;
let sessions: Sessions;
let folder: string;

beforeAll(async () => {
  space = await startSpace();
  sessions = sessionsOf(space);
  folder = mkdtempSync(join(tmpdir(), "cotal-example-"));
});
afterAll(async () => {
  await sessions.closeAll();
  await space.stop();
  rmSync(folder, { recursive: true, force: true });
});

test("the echo agent answers a direct message and a mention, and leaves when it is told to", async () => {
  const file = join(folder, "echo.creds");
  const echo = await space.mint({ actor: "echo", subscribe: ["general"], publish: ["general"] });
  writeFileSync(file, echo.text, { mode: 0o600 });
  const program = join(import.meta.dirname, "..", "..", "examples", "echo-agent.ts");
  const child = spawn(process.execPath, [program, space.url, file], { stdio: ["ignore", "pipe", "inherit"] });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  await new Promise((resolve) => child.stdout.once("data", resolve));

  const alice = await sessions.minted({ actor: "alice", subscribe: ["general"], publish: ["general"] });
  await alice.join("general");
  const asked = await alice.dm(`${echo.view.principal.owner}.echo`, "anybody?");
  await alice.send("general", "hello everyone", { mentions: ["echo"] });
  const items = await take(alice, 2);
  expect(items.map(({ kind, text, replyTo }) => ({ kind, text, replyTo }))).toEqual(
    expect.arrayContaining([
      { kind: "dm", text: "you said: anybody?", replyTo: asked.id },
      expect.objectContaining({ kind: "chat", text: "hello, alice" }),
    ]),
  );
  child.kill("SIGTERM");
  expect(await ended).toBe(0);
});

describe("as whoever has signed in", () => {
  const ROOT = join(import.meta.dirname, "..", "..");
  let plane: TestPlane;
  beforeAll(async () => {
    plane = await startPlane();
  }, 60_000);
  afterAll(() => plane.stop());

  /** A program of this folder, on the plane's state; its lines as they come. */
  function running(...args: readonly string[]) {
    const env = { ...process.env, COTAL_STATE: plane.state };
    const child = spawn(process.execPath, args, { cwd: ROOT, env, stdio: ["ignore", "pipe", "inherit"] });
    let out = "";
    child.stdout.setEncoding("utf8").on("data", (text: string) => (out += text));
    const ended = new Promise((resolve) => child.once("exit", resolve));
    onTestFinished(async () => {
      child.kill("SIGKILL");
      await ended;
    });
    return { child, ended, out: () => out };
  }

  test("the echo agent needs no credential file where people sign in", async () => {
    const echo = running(join("examples", "echo-agent.ts"), plane.server);
    await expect.poll(echo.out, { timeout: 20_000 }).toMatch(/\.echo is here/);
    await plane.json("dm", "echo", "anybody?", "--as", "alice");
    const items = await plane.json("tail", "--as", "alice", "--dm", "--count", "1", "--timeout", "20");
    expect(textsOf(items.filter(({ kind }) => kind === "dm"))).toEqual(["you said: anybody?"]);
    echo.child.kill("SIGTERM");
    expect(await echo.ended).toBe(0);
  }, 60_000);

  test("PI.07 the echo endpoint, in sixty lines, is described and called by whoever was granted it", async () => {
    const program = join("examples", "echo-endpoint.ts");
    expect(readFileSync(join(ROOT, program), "utf8").trimEnd().split("\n").length).toBeLessThanOrEqual(60);
    const [me] = await plane.json("whoami", "--as", "alice");
    const [owner = ""] = String(me?.["principal"]).split(".");
    await plane.json("endpoint", "assign", "com.example.echo", "--owner", owner);
    await plane.json("actor", "grant", "echo", "--capability", "serve");
    const early = await plane.run("actor", "grant", "early", "--capability", "com.example.echo");
    expect(early.err).toContain("com.example.echo has not registered yet");
    const echo = running(program, plane.server);
    await expect.poll(echo.out, { timeout: 20_000 }).toMatch(/com\.example\.echo is served as/);
    await plane.json("actor", "grant", "carol", "--capability", "com.example.echo");

    const [shown] = await plane.json("describe", "com.example.echo", "--as", "carol");
    expect(shown).toMatchObject({ commands: [{ name: "say" }, { name: "note" }] });
    const hello = ["call", "com.example.echo", "say", "--args", '{"text":"hello"}'];
    const [said] = await plane.json(...hello, "--as", "carol");
    expect(said).toMatchObject({ data: { text: "hello", from: `${owner}.carol` } });
    const milk = ["call", "com.example.echo", "note", "--args", '{"text":"milk"}', "--target", "self"];
    expect((await plane.json(...milk, "--as", "carol"))[0]).toMatchObject({ data: { notes: ["milk"] } });
    // Who was granted nothing of it sees nothing of it.
    expect((await plane.json("describe", "com.example.echo", "--as", "dave"))[0]).toMatchObject({ commands: [] });
    expect(await plane.run(...hello, "--as", "dave")).toMatchObject({ code: 1 });
    echo.child.kill("SIGTERM");
    expect(await echo.ended).toBe(0);
  }, 60_000);

  test("the program of the README runs as it stands, as the agent that the README grants", async () => {
    const readme = readFileSync(join(ROOT, "README.md"), "utf8");
    const [, grant = ""] = /^npx cotal (actor grant .*)$/m.exec(readme) ?? [];
    const [, code = ""] = /```ts\n([^`]+)```/.exec(readme) ?? [];
    await plane.json(...grant.split(" ").map((word) => word.replaceAll("'", "")));
    const here = code.replace("nats://127.0.0.1:4222", plane.server);
    expect(here).not.toBe(code);
    const agent = running("--input-type=module-typescript", "--eval", here);
    await expect
      .poll(() => plane.json("who").then((members) => members.map(({ name }) => name)), { timeout: 20_000 })
      .toContain("scout");
    await plane.json("send", "news", "it works", "--as", "alice");
    await expect.poll(agent.out, { timeout: 20_000 }).toBe("chat alice it works\n");
  }, 60_000);
});
