/**
 * `npm run generate`: writes every checked-in file that is made from the sources.
 * `npm run generate -- --check` writes nothing, names the stale ones and exits 1.
 *
 * The generators are listed in generate/all.ts.
 */
import { join } from "node:path";
import { GENERATORS } from "./generate/all.ts";
import { staleFiles, writeFiles } from "./generate/generated.ts";

const ROOT = join(import.meta.dirname, "..");
const checkOnly = process.argv.includes("--check");

for (const [name, generator] of Object.entries(GENERATORS)) {
  if (checkOnly) {
    const stale = await staleFiles(ROOT, generator);
    for (const { file, why } of stale) console.log(`${file} ${why}`);
    if (stale.length > 0) {
      console.log(`${name}: ${stale.length} stale, run npm run generate`);
      process.exitCode = 1;
    }
  } else {
    console.log(`${name}: ${(await writeFiles(ROOT, generator)).length} files`);
  }
}
