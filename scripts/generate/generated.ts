/** What a generator hands back, and what became of it on disk. */
import { mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

/** One file, by its path from the root of the repository, and all of its text. */
export type Generated = { readonly file: string; readonly text: string };

export type Generator = {
  readonly make: () => Generated[] | Promise<Generated[]>;
  /** A folder that holds this generator's files and no others: a leftover there is stale too. */
  readonly folder?: string;
};

/** The files on disk that differ from what their generator makes, with the reason. */
export async function staleFiles(root: string, { make, folder }: Generator): Promise<{ file: string; why: string }[]> {
  const made = await make();
  const stale = made.flatMap(({ file, text }) => {
    const now = readIfThere(join(root, file));
    return now === text ? [] : [{ file, why: now === undefined ? "is missing" : "is not what its generator makes" }];
  });
  return [...stale, ...leftovers(root, folder, made).map((file) => ({ file, why: "has no generator" }))];
}

/** Writes what a generator makes, and removes what it no longer makes. */
export async function writeFiles(root: string, { make, folder }: Generator): Promise<string[]> {
  const made = await make();
  for (const { file, text } of made) {
    mkdirSync(dirname(join(root, file)), { recursive: true });
    writeFileSync(join(root, file), text);
  }
  for (const file of leftovers(root, folder, made)) rmSync(join(root, file));
  return made.map(({ file }) => file);
}

function leftovers(root: string, folder: string | undefined, made: readonly Generated[]): string[] {
  if (folder === undefined) return [];
  const wanted = new Set(made.map(({ file }) => file));
  return filesIn(join(root, folder))
    .map((name) => `${folder}/${name}`)
    .filter((file) => !wanted.has(file));
}

function filesIn(folder: string): string[] {
  return ifThere(() => readdirSync(folder)) ?? [];
}

function readIfThere(path: string): string | undefined {
  return ifThere(() => readFileSync(path, "utf8"));
}

function ifThere<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}
