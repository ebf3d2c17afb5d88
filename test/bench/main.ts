/**
 * `npm run bench -- NAME [--json]`: measures, and prints one line a metric as it is known.
 *
 * With `--json` a line is an object of `bench, metric, value, unit, bare, ratio, n`; without it a
 * table with the aims and what the bare side is. Ends with 2 when it was asked wrongly.
 */
import { call } from "./call.ts";
import { callout } from "./callout.ts";
import { ends } from "./ends.ts";
import { fanout } from "./fanout.ts";
import { idle } from "./idle.ts";
import { type Report, TABLE_HEAD, tableRow } from "./line.ts";
import { live } from "./live.ts";
import { load } from "./load.ts";

const BENCHES: Readonly<Record<string, (report: Report) => Promise<void>>> = {
  live,
  idle,
  callout,
  call,
  fanout,
  ends,
  load,
};

const args = process.argv.slice(2);
const [name, ...more] = args.filter((arg) => arg !== "--json");
const bench = name === undefined || !Object.hasOwn(BENCHES, name) ? undefined : BENCHES[name];

if (bench === undefined || more.length > 0) {
  process.stderr.write(`usage: npm run bench -- ${Object.keys(BENCHES).join(" | ")} [--json]\n`);
  process.exitCode = 2;
} else if (args.includes("--json")) {
  await bench((line) => process.stdout.write(`${JSON.stringify(line)}\n`));
} else {
  process.stdout.write(`${TABLE_HEAD}\n`);
  await bench((line, about) => process.stdout.write(`${tableRow(line, about)}\n`));
}
