/** The commands of `cotal`, as its help lists them: no other ones, and every one that is written about is there. */
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { cli } from "../support/cli.ts";

const ROOT = join(import.meta.dirname, "..", "..");
/** Commands that have commands of their own, and those. */
const GROUPS: Readonly<Record<string, string>> = {
  actor: "grant list narrow retire revoke rotate",
  channel: "purge set",
  endpoint: "assign",
  groups: "set show",
  keys: "finish rotate",
  limits: "set show",
  space: "add show",
  task: "cancel status",
};
/** What runs managed agents (spawn, ps, run) is not here yet. */
const OTHERS =
  "ask backup call cast channels deprovision describe dm doctor down endpoints history join leave login logout mint " +
  "pending restore scatter send status tail trace up who whoami";

const PAGES = [
  "README.md",
  ...["architecture", "endpoints", "interop", "operating"].map((name) => `docs/${name}.md`),
  ...["operating", "security"].flatMap((folder) =>
    readdirSync(join(ROOT, "docs", folder)).map((name) => `docs/${folder}/${name}`),
  ),
];

async function listed(...path: string[]): Promise<string> {
  const { code, out } = await cli([...path, "--help"]);
  expect([path, code]).toEqual([path, 0]);
  const [, commands = ""] = out.split(/^Commands:$/m);
  const names = [...commands.matchAll(/^ {2}([a-z]+)/gm)].map(([, name = ""]) => name);
  return names
    .filter((name) => name !== "help")
    .toSorted()
    .join(" ");
}

test("A.12 the help lists every command, and each group every one of its own", async () => {
  const all = [...OTHERS.split(" "), ...Object.keys(GROUPS)].toSorted().join(" ");
  expect(await listed()).toBe(all);
  const own = await Promise.all(Object.keys(GROUPS).map(async (name) => [name, await listed(name)]));
  expect(Object.fromEntries(own)).toEqual(GROUPS);
}, 60_000);

test("A.12 a command that an operator or a user is told to type is one of them", () => {
  const wrong: string[] = [];
  let typed = 0;
  for (const page of PAGES) {
    // Where it is code: after a backtick or npx, in a line of its own, or in a container.
    const told = /(?:`|npx |^ {4}|cli |spaces )cotal ([a-z]+)(?: ([a-z]+))?/gm;
    for (const [text, name = "", second] of readFileSync(join(ROOT, page), "utf8").matchAll(told)) {
      typed += 1;
      const own = GROUPS[name]?.split(" ");
      const isOne = own === undefined ? OTHERS.split(" ").includes(name) : second === undefined || own.includes(second);
      if (!isOne) wrong.push(`${page}: ${text}`);
    }
  }
  expect(typed).toBeGreaterThan(40);
  expect(wrong).toEqual([]);
});

test("W9.02 a rotation says that the broker's own trust is that of all its spaces, and what replaces it", async () => {
  const { out } = await cli(["keys", "--help"]);
  expect(out.replaceAll(/\s+/g, " ")).toContain("(operator, system account) are those of all its spaces, and stay");
  const page = readFileSync(join(ROOT, "docs", "operating", "rotate.md"), "utf8").replaceAll(/\s+/g, " ");
  expect(page).toContain("are replaced for all its spaces at once, and only by a new state folder");
}, 60_000);
