/** The one-shot of a container deployment, run as there, beside a real broker that includes what it made. */
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import {
  cpSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  readlinkSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { cli } from "../support/cli.ts";
import { type TestBroker, startBroker } from "../support/nats-server.ts";

const PROGRAM = join(import.meta.dirname, "..", "..", "services", "trust", "initialise.ts");
const DYING = join(import.meta.dirname, "..", "support", "dying-writes.ts");
/** Writes before each death: more than a run makes that finds everything, or it would never end. */
const STRIDE = 7;

const roots = mkdtempSync(join(tmpdir(), "cotal-initialiser-"));
const root = join(roots, "whole");
let broker: TestBroker;

/** Beside the last write of a stride. */
type Death = "before" | "after";
type Ran = { readonly code: number | null; readonly out: string };

/** Runs it to its end, or to its death at the end of a stride of writes. */
function run(args: readonly string[], at = root, death?: Death): Promise<Ran> {
  const dying =
    death === undefined
      ? {}
      : { NODE_OPTIONS: `--import=${DYING}`, COTAL_TEST_WRITES: String(STRIDE), COTAL_TEST_STRIKE: death };
  const child = spawn(process.execPath, [PROGRAM, ...args, "--root", at], {
    env: {
      PATH: process.env["PATH"],
      COTAL_SERVERS: broker?.url,
      COTAL_AUTH_DEV_ISSUER: "true",
      COTAL_BROKERS: "broker-1,broker-2,broker-3",
      ...dying,
    },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let out = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (text: Buffer) => (out += text.toString()));
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code) => resolve({ code, out }));
  });
}

async function done(args: readonly string[]): Promise<void> {
  const { code, out } = await run(args);
  if (code !== 0) throw new Error(`it ended with ${code}: ${out}`);
}

beforeAll(async () => {
  await done(["broker"]);
  broker = await startBroker({
    configFile: async (port) => {
      const file = join(root, "test.conf");
      const include = relative(root, join(root, "broker", "trust", "operator.conf"));
      const text = [
        `include ${JSON.stringify(include)}`,
        `listen: "127.0.0.1:${port}"`,
        "max_control_line: 65536",
        "max_payload: 1048576",
        `jetstream { store_dir: ${JSON.stringify(join(roots, "store"))} }`,
        `resolver { type: full, dir: ${JSON.stringify(join(roots, "accounts"))}, allow_delete: false }`,
      ];
      writeFileSync(file, text.join("\n"));
      return file;
    },
  });
  await done(["spaces", "main"]);
}, 60_000);
afterAll(async () => {
  await broker?.stop();
  rmSync(roots, { recursive: true, force: true });
});

/** Every name below, with what it holds (as a digest) or where it leads. */
function picture(at: string): Map<string, string> {
  const names = readdirSync(at, { recursive: true, encoding: "utf8" }).toSorted();
  return new Map(
    names.flatMap((name) => {
      const path = join(at, name);
      const found = lstatSync(path);
      if (found.isSymbolicLink()) return [[name, `-> ${readlinkSync(path).replace(at, "")}`] as const];
      return found.isFile() ? [[name, createHash("sha256").update(readFileSync(path)).digest("hex")] as const] : [];
    }),
  );
}
const names = (at: string): string[] => [...picture(at).keys()];
/** What a death may leave behind, nobody reads, and the next run clears away. */
const isStaged = (name: string): boolean => name.endsWith(".tmp");

describe("A.05 the trust initialiser", () => {
  test("run again it changes nothing at all", async () => {
    const before = picture(root);
    for (const args of [["broker"], ["spaces", "main"]]) expect(await run(args)).toMatchObject({ code: 0 });
    expect(picture(root)).toEqual(before);
  }, 30_000);

  test("each daemon's volume holds its own keys, the desk the operator's, and each file is its owner's alone", () => {
    for (const daemon of ["provisioner", "auth", "delivery"]) {
      expect(readlinkSync(join(root, "state", "spaces", "main", daemon))).toBe(join(root, "keys", daemon, "main"));
      expect(names(join(root, "keys", daemon, "main"))).toContain("space.json");
    }
    expect(names(join(root, "desk")).toSorted()).toEqual([
      "run/exchange-main.json",
      "spaces/main/operator/operator.creds",
      "spaces/main/sentinel.jwt",
    ]);
    const open = names(root)
      .map((name) => join(root, name))
      .filter((path) => path !== join(root, "test.conf") && (statSync(path).mode & 0o077) !== 0);
    expect(open).toEqual([]);
    expect(readdirSync(join(root, "keys", "auth"), { recursive: true }).some((name) => isStaged(String(name)))).toBe(
      false,
    );
  });

  test("whatever it is asked, it prints no secret", async () => {
    const { out } = await run(["spaces", "main"]);
    const broken = await run(["spaces"]);
    const secrets = names(root)
      .filter((name) => /\.(?:nk|secret|jwk|creds|capability)$/.test(name) && lstatSync(join(root, name)).isFile())
      .flatMap((name) => readFileSync(join(root, name), "utf8").match(/[A-Za-z0-9_-]{40,}/g) ?? []);
    expect(secrets.length).toBeGreaterThan(20);
    expect(out).toContain('"kind":"space-trust"');
    expect(secrets.filter((secret) => `${out}${broken.out}`.includes(secret))).toEqual([]);
  }, 30_000);

  test("that dies between two writes is completed by the next run, which keeps what was drawn and clears away what was not finished", async () => {
    const at = join(roots, "dying");
    // A folder is bound to the broker's trust, so this one begins with it.
    cpSync(join(root, "state", "trust"), join(at, "state", "trust"), { recursive: true });
    let deaths = 0;
    let unfinished = 0;
    let known = new Map<string, string>();
    for (;;) {
      const { code } = await run(["spaces", "other"], at, deaths % 2 === 0 ? "before" : "after");
      const now = picture(at);
      const drawn = [...known].filter(([name]) => /\.(?:nk|jwk|secret|uid|capability)$/.test(name));
      expect(drawn.filter(([name, digest]) => now.get(name) !== digest)).toEqual([]);
      known = now;
      if (code === 0) break;
      deaths += 1;
      unfinished += [...now.keys()].filter(isStaged).length;
    }
    expect(deaths).toBeGreaterThan(3);
    expect(unfinished).toBeGreaterThan(0);
    expect(names(at).filter(isStaged)).toEqual([]);
    const spaceOf = (whole: string, name: string): string[] =>
      names(whole)
        .filter((path) => !/^(?:state\/)?broker\//.test(path) && path !== "test.conf")
        .map((path) => path.replaceAll(name, "NAME"));
    expect(spaceOf(at, "other")).toEqual(spaceOf(root, "main"));
    const before = picture(at);
    expect(await run(["spaces", "other"], at)).toMatchObject({ code: 0 });
    expect(picture(at)).toEqual(before);
  }, 120_000);
});

describe("A.07 a rotation of keys", () => {
  const keys = async (...args: readonly string[]): Promise<void> => {
    const state = ["--state", join(root, "state"), "--server", broker.url];
    const ran = await cli(["keys", ...args, ...state]);
    if (ran.code !== 0) throw new Error(`keys ${args.join(" ")} ended with ${ran.code}: ${ran.out} ${ran.err}`);
  };
  const OF_OPERATOR = ["sentinel.jwt", join("operator", "operator.creds")];
  const at = (...path: readonly string[]): string[] =>
    OF_OPERATOR.map((file) => readFileSync(join(root, ...path, "spaces", "main", file), "utf8"));

  test("A.07 the desk has credential and sentinel of the new keys at once; a copy of it from before is told where to get them", async () => {
    const before = at("desk");
    expect(before).toEqual(at("state"));
    const copy = join(roots, "copied-desk");
    cpSync(join(root, "desk"), copy, { recursive: true });
    await keys("rotate");
    expect(at("desk")).toEqual(at("state"));
    expect(at("desk").filter((text, n) => text === before[n])).toEqual([]);
    await keys("finish");
    expect(at("desk")).toEqual(at("state"));
    const { code, items } = await cli(["doctor", "--json", "--state", copy, "--server", broker.url]);
    expect(code).toBe(5);
    expect(items()).toContainEqual(
      expect.objectContaining({
        kind: "finding",
        level: "error",
        message: expect.stringContaining("operator.creds: it was taken back") as string,
        next: expect.stringContaining("docker compose up -d --no-recreate && deploy/desk") as string,
      }),
    );
  }, 60_000);
});

describe("A.05 the trust initialiser refuses by name, quotes nothing and mends nothing:", () => {
  const spoil = (path: string, make: (text: string) => string): (() => void) => {
    const text = readFileSync(path, "utf8");
    writeFileSync(path, make(text));
    return () => writeFileSync(path, text);
  };
  test.each([
    ["broker", "state/trust/operator.jwt"],
    ["broker", "state/trust/route.secret"],
    ["spaces", "state/spaces/main/auth/owner.secret"],
    ["spaces", "keys/auth/main/face.capability"],
    ["spaces", "state/spaces/main/auth/dev-issuer.jwk"],
  ] as const)("%s, and half of %s", async (what, file) => {
    const path = join(root, file);
    const half = readFileSync(path, "utf8").slice(0, 20);
    const mend = spoil(path, () => half);
    try {
      const before = picture(root);
      const { code, out } = await run(what === "broker" ? ["broker"] : ["spaces", "main"]);
      expect([code, out]).toEqual([1, expect.stringContaining(`${path} does not hold what it should`)]);
      expect([out.includes(half), out.includes("put back that file from a copy of its folder")]).toEqual([false, true]);
      expect(picture(root)).toEqual(before);
    } finally {
      mend();
    }
  });

  test("a folder of keys that is no link to the daemon's volume", async () => {
    const at = join(roots, "unlinked");
    const path = join(at, "state", "spaces", "main", "auth");
    mkdirSync(path, { recursive: true });
    const { code, out } = await run(["folders", "main"], at);
    expect([code, out]).toEqual([
      1,
      expect.stringContaining(`${path} is no link to ${join(at, "keys", "auth", "main")}`),
    ]);
    rmSync(path, { recursive: true });
    expect(await run(["folders", "main"], at)).toMatchObject({ code: 0 });
    expect(readlinkSync(path)).toBe(join(at, "keys", "auth", "main"));
  });
});
