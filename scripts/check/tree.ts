/**
 * What a checker looks at: a list of files and a way to read them.
 *
 * A checker takes a tree and nothing else, so its test hands it a few files in memory and never
 * depends on what the project holds today.
 */
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

export type Tree = {
  /** Paths from the root, with `/`, sorted. */
  readonly files: readonly string[];
  readonly read: (file: string) => string;
};

/** What a checker answers. No problem means the rule holds; `note` is shown beside a good result. */
export type Finding = { readonly problems: readonly string[]; readonly note?: string };

export type Checker = (tree: Tree) => Finding;

/** Everything git tracks or would track: a file is checked before its first commit too. */
export function gitTree(root: string): Tree {
  const listed = execFileSync("git", ["ls-files", "--cached", "--others", "--exclude-standard", "-z"], {
    cwd: root,
    encoding: "utf8",
    maxBuffer: 1 << 26,
  });
  const files = [...new Set(listed.split("\0"))].filter((file) => file !== "" && existsSync(join(root, file)));
  return { files: files.sort(), read: (file) => readFileSync(join(root, file), "utf8") };
}

/** A tree of a test: file name to text. */
export function memoryTree(texts: Readonly<Record<string, string>>): Tree {
  return {
    files: Object.keys(texts).sort(),
    read: (file) => {
      const text = texts[file];
      if (text === undefined) throw new Error(`no such file: ${file}`);
      return text;
    },
  };
}
