/**
 * Commands as the documentation writes them, and a checkout to run them in: what an operator copies is what is
 * tested. A block that is not there, or is there twice, is an error: no test passes for want of a command.
 */
import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";

const ROOT = join(import.meta.dirname, "..", "..");

/** The one block of code of a page that has this text in it, without its indentation. */
export function blockWith(page: string, text: string): string {
  const lines = readFileSync(join(ROOT, "docs", page), "utf8").split("\n");
  const found = blocksOf(lines).filter((block) => block.includes(text));
  const [block] = found;
  if (block === undefined || found.length > 1) {
    throw new Error(`${page} has ${found.length} blocks of code with ${JSON.stringify(text)}`);
  }
  return block;
}

/** A command that the text of a page names, as it stands there. */
export function wordedIn(page: string, command: string): string {
  if (!readFileSync(join(ROOT, "docs", page), "utf8").includes(`\`${command}\``)) {
    throw new Error(`${page} does not say ${command}`);
  }
  return command;
}

/** Its commands, one by one; a comment is none. */
export const commandsOf = (block: string): string[] =>
  block.split("\n").filter((line) => line !== "" && !line.startsWith("#"));

/** Fenced blocks, and blocks that are indented by four and more. */
function blocksOf(lines: readonly string[]): string[] {
  const blocks: string[][] = [];
  let [fenced, open] = [false, false];
  for (const line of lines) {
    const isFence = line.trimStart().startsWith("```");
    if (isFence) fenced = !fenced;
    const isCode = !isFence && (fenced || /^ {4,}\S/.test(line));
    if (isCode && !open) blocks.push([]);
    if (isCode) blocks.at(-1)?.push(line.trim());
    open = isCode;
  }
  return blocks.map((block) => block.join("\n"));
}

export type Checkout = { readonly root: string; readonly remove: () => void };

/** What a clone would have, in a folder of its own, with the packages of this one. */
export function checkout(): Checkout {
  const root = mkdtempSync(join(tmpdir(), "cotal-checkout-"));
  const list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
  const files = execFileSync("git", list, { cwd: ROOT, encoding: "utf8" }).split("\0");
  for (const file of files.filter((name) => name !== "" && !name.startsWith("node_modules"))) {
    mkdirSync(dirname(join(root, file)), { recursive: true });
    cpSync(join(ROOT, file), join(root, file));
  }
  symlinkSync(join(ROOT, "node_modules"), join(root, "node_modules"));
  return { root, remove: () => rmSync(root, { recursive: true, force: true }) };
}
