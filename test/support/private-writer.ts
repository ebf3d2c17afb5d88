/** Writes one private file over and over, until it is killed. */
import { writePrivate } from "../../shared/trust/folder.ts";

const [path] = process.argv.slice(2);
if (path === undefined) throw new Error("name the file to write");
for (let round = 0; ; round += 1) {
  writePrivate(path, (round % 2 === 0 ? "a" : "b").repeat(200_000));
  if (round === 0) process.send?.("writing");
}
