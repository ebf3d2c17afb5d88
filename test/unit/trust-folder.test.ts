/** Trust material on disk: modes, first writer wins, and no half-written file. */
import { fork } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, onTestFinished, test } from "vitest";
import {
  createPrivate,
  keptAs,
  keptKey,
  keptSecret,
  keptUid,
  trustPaths,
  writePrivate,
  writePrivateBeside,
} from "../../shared/trust/folder.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { refusal } from "../support/refusal.ts";

function folder(): string {
  const path = mkdtempSync(join(tmpdir(), "cotal-trust-"));
  onTestFinished(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

const mode = (path: string) => (statSync(path).mode & 0o777).toString(8);

describe("files and folders", () => {
  test("a file is 0600 in a 0700 folder, whatever the umask and the folder were", () => {
    const before = process.umask(0);
    onTestFinished(() => void process.umask(before));
    const root = folder();
    mkdirSync(join(root, "open"), { mode: 0o777 });
    for (const path of [join(root, "open", "a"), join(root, "new", "deep", "b")]) {
      writePrivate(path, "secret");
      expect([mode(path), mode(dirname(path))]).toEqual(["600", "700"]);
      createPrivate(`${path}2`, () => "secret");
      expect(mode(`${path}2`)).toBe("600");
    }
  });

  test("a folder that is not ours keeps its mode, and the file in it is private all the same", () => {
    const root = folder();
    mkdirSync(join(root, "run"));
    chmodSync(join(root, "run"), 0o755);
    for (const [path, expected] of [
      [join(root, "run", "face.json"), "755"],
      [join(root, "new", "face.json"), "700"],
    ] as const) {
      writePrivateBeside(path, "secret");
      expect([mode(path), mode(dirname(path)), readdirSync(dirname(path))]).toEqual(["600", expected, ["face.json"]]);
    }
  });

  test("what could not be written leaves nothing behind, try after try", () => {
    const root = folder();
    mkdirSync(join(root, "a"));
    writeFileSync(join(root, "a", "full"), "");
    for (let round = 0; round < 3; round += 1) {
      expect(() => writePrivate(join(root, "a"), "secret")).toThrow(/EISDIR|ENOTEMPTY|EEXIST|ENOTDIR/);
    }
    expect(readdirSync(root)).toEqual(["a"]);
  });

  test("a loose file becomes a private one when it is written anew", () => {
    const path = join(folder(), "a");
    writeFileSync(path, "old", { mode: 0o644 });
    writePrivate(path, "new");
    expect([readFileSync(path, "utf8"), mode(path)]).toEqual(["new\n", "600"]);
  });

  test("a link is replaced, not followed", () => {
    const root = folder();
    const outside = join(root, "outside");
    writeFileSync(outside, "untouched");
    symlinkSync(outside, join(root, "a"));
    writePrivate(join(root, "a"), "secret");
    expect(readFileSync(outside, "utf8")).toBe("untouched");
  });

  test("nothing is left beside the file", () => {
    const root = folder();
    writePrivate(join(root, "a"), "1");
    writePrivate(join(root, "a"), "2");
    createPrivate(join(root, "b"), () => "1");
    createPrivate(join(root, "b"), () => "2");
    expect(readdirSync(root).toSorted()).toEqual(["a", "b"]);
  });
});

describe("a secret is created once", () => {
  test("the first text stays, and every caller reads it", () => {
    const path = join(folder(), "a");
    expect(createPrivate(path, () => "first")).toBe("first");
    expect(
      createPrivate(path, () => {
        throw new Error("must not be made again");
      }),
    ).toBe("first");
  });

  test("one that loses the race reads the winner's", () => {
    const path = join(folder(), "a");
    const text = createPrivate(path, () => {
      // Another process was faster while this one drew its secret.
      writeFileSync(path, "theirs\n", { mode: 0o600 });
      return "ours";
    });
    expect([text, readdirSync(dirname(path))]).toEqual(["theirs", ["a"]]);
  });

  test("a key and a secret are the same at every start", () => {
    const root = folder();
    const key = keptKey(join(root, "k.nk"), "account");
    expect(keptKey(join(root, "k.nk"), "account").publicKey).toBe(key.publicKey);
    expect(keptSecret(join(root, "s"))).toEqual(keptSecret(join(root, "s")));
    expect(keptSecret(join(root, "s"))).toHaveLength(32);
    expect(keptSecret(join(root, "t"))).not.toEqual(keptSecret(join(root, "s")));
  });

  test.each([
    ["half of a secret", (path: string) => keptSecret(path), "ab".repeat(10)],
    ["an empty secret", (path: string) => keptSecret(path), ""],
    ["half of a UID", (path: string) => keptUid(path), "abcdef"],
    ["a key of another kind", (path: string) => keptKey(path, "operator"), newKey("account").seedText()],
    ["half of a key", (path: string) => keptKey(path, "user"), newKey("user").seedText().slice(0, 20)],
    ["what other files say otherwise", (path: string) => keptAs(path, "one trust"), "another trust"],
  ])("%s is refused by the file's name, quoted nowhere, and stays as it is", (_what, read, text) => {
    const path = join(folder(), "kept");
    writeFileSync(path, text);
    const { code, message, next } = refusal(() => read(path));
    expect([code, message]).toEqual(["failed-precondition", `${path} does not hold what it should`]);
    expect([text !== "" && `${message}${next}`.includes(text), readFileSync(path, "utf8")]).toEqual([false, text]);
  });
});

test("a process killed in the middle of writing leaves a whole file, old or new", async () => {
  const path = join(folder(), "a");
  const text = (letter: string) => letter.repeat(200_000);
  for (let round = 0; round < 5; round += 1) {
    const child = fork(join(import.meta.dirname, "..", "support", "private-writer.ts"), [path], { stdio: "ignore" });
    await new Promise((begun) => child.once("message", begun));
    await sleep(3 * round);
    const ended = new Promise((end) => child.once("exit", end));
    child.kill("SIGKILL");
    await ended;
    expect(existsSync(path)).toBe(true);
    expect([text("a"), text("b")]).toContain(readFileSync(path, "utf8").trimEnd());
  }
});

test("each part of the state folder has its own reader's place", () => {
  const paths = trustPaths("/s");
  expect(paths.operatorKey).toBe("/s/trust/operator.nk");
  expect(paths.spaceTrust("main")).toBe("/s/spaces/main/trust");
  expect(paths.provisioner("main")).toBe("/s/spaces/main/provisioner");
  expect(paths.operatorCreds("main")).toBe("/s/spaces/main/operator/operator.creds");
  expect(paths.agentCreds("main", "alice")).toBe("/s/spaces/main/agents/alice.creds");
});
