/**
 * A subject, bucket, stream or inbox is spelled in `shared/protocol/` only: this finds the ones
 * written by hand anywhere else.
 *
 * Tests spell subjects out on purpose (a test that used the builder would agree with its mistakes),
 * and this folder has to name what it looks for.
 */
import { HOLE, SOURCE_FILE, literalText, parseSource, walk } from "./source.ts";
import { type Finding, type Tree } from "./tree.ts";

const EXEMPT = /^(?:shared\/protocol|test|scripts\/check)\//;

/** File names such as `cotal.json` are no subjects; `cotal.json.x` would be one. */
const FILE_NAME = "(?:js|ts|json|ya?ml|toml|conf|log|pid|md|db)(?![\\w.])";

const SPELLINGS: readonly { readonly what: string; readonly pattern: RegExp }[] = [
  {
    what: "a wire subject",
    // Not after a word, a dot or a path: `.cotal`, `ai.cotal.x` and `./cotal.ts` are something else.
    pattern: new RegExp(`(?<![\\w./@-])cotal\\.(?!${FILE_NAME})(?:[a-z0-9_*>${HOLE}]|(?<=^cotal\\.)$)`),
  },
  { what: "a broker subject", pattern: /\$(?:JS|KV|SYS|O)\./ },
  { what: "an inbox", pattern: /_INBOX/ },
];

export function checkLiterals(tree: Tree): Finding {
  const problems: string[] = [];
  for (const file of tree.files) {
    if (EXEMPT.test(file) || !SOURCE_FILE.test(file)) continue;
    const source = parseSource(file, tree.read(file));
    for (const node of walk(source.program)) {
      const text = literalText(node);
      if (text === undefined) continue;
      for (const { what, pattern } of SPELLINGS) {
        if (!pattern.test(text)) continue;
        const shown = JSON.stringify(text.replaceAll(HOLE, "${…}").slice(0, 60));
        problems.push(`${file}:${source.lineOf(node)}: spells ${what} by hand: ${shown}; build it in shared/protocol`);
      }
    }
  }
  return { problems };
}
