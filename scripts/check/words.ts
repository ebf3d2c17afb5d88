/**
 * Nothing in the repository names the machine it was written on: an absolute path of a home or
 * working folder, or the registry a package came from. Both fail for the next reader.
 */
import { type Finding, type Tree } from "./tree.ts";

/** This file and its test have to write the words they refuse. */
const EXEMPT: ReadonlySet<string> = new Set(["scripts/check/words.ts", "test/unit/scripts-words.test.ts"]);

const WORDS: readonly { readonly what: string; readonly pattern: RegExp }[] = [
  { what: "an absolute path of one machine", pattern: /(?<![\w.\-})\]])\/(?:work|root|Users\/\w+)(?![\w-])/ },
  { what: "a package registry", pattern: /\/\/registry\.|\bregistry\.(?:npmjs|yarnpkg|npmmirror)\.|_authToken/ },
];

export function checkWords(tree: Tree): Finding {
  const problems: string[] = [];
  for (const file of tree.files) {
    if (EXEMPT.has(file)) continue;
    const text = tree.read(file);
    if (text.includes("\0")) continue; // binary
    for (const [index, line] of text.split("\n").entries()) {
      for (const { what, pattern } of WORDS) {
        const word = pattern.exec(line)?.[0];
        if (word !== undefined) problems.push(`${file}:${index + 1}: names ${what}: ${word}`);
      }
    }
  }
  return { problems };
}
