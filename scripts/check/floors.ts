/**
 * The floors of the house: an import goes down, never up, never sideways.
 *
 * Invariants
 * 1. Every source file under `shared/`, `services/`, `launcher/` and `cli/` has a floor. A new
 *    folder is refused until it has a row here.
 * 2. `protocol` is pure: no I/O, no ambient clock, no randomness; so it takes no package but the
 *    named ones, and of `node:crypto` only hashing. (Its one clock counts processor time, for the
 *    budgets of foreign schemas: contract/meter.ts.)
 * 3. `test/`, `scripts/` and `examples/` import what they like, and nothing imports them.
 */
import { posix } from "node:path";
import { type Import, SOURCE_FILE, importsOf, parseSource } from "./source.ts";
import { type Finding, type Tree } from "./tree.ts";

type Room = {
  readonly path: string;
  readonly floor: number;
  /** Rooms of the same floor this one may import all the same. */
  readonly beside?: readonly string[];
  /** The only files of other rooms this one may import. */
  readonly only?: readonly string[];
  /** The only packages it may import, each with the names it may take (`*`: all). */
  readonly packages?: Readonly<Record<string, readonly string[] | "*">>;
};

const ROOMS: readonly Room[] = [
  {
    path: "shared/protocol",
    floor: 0,
    packages: {
      zod: "*",
      canonicalize: "*",
      "node:crypto": ["createHash", "hash"],
      ajv: ["Ajv2020", "ErrorObject", "KeywordCxt", "_"],
      re2js: ["RE2Set"],
      "lru-cache": ["LRUCache"],
    },
  },
  { path: "shared/grants", floor: 1 },
  { path: "shared/trust", floor: 2 },
  { path: "shared/broker", floor: 2, beside: ["shared/trust"] },
  { path: "shared/ledger", floor: 3 },
  { path: "shared/client", floor: 3 },
  { path: "shared/serve", floor: 3 },
  // Reads and writes whole spaces, for the command line.
  { path: "shared/backup", floor: 4 },
  // The toolkit of somebody who serves: both sides of the rails.
  { path: "shared/endpoint", floor: 4 },
  {
    // Knows no subject and no profile: errors, and how a connection and a lease report their state.
    path: "shared/daemon",
    floor: 4,
    only: ["shared/protocol/base/errors.ts", "shared/broker/connect.ts", "shared/broker/lease.ts"],
  },
  { path: "launcher", floor: 6 },
  { path: "cli", floor: 7 },
];

const SERVICE_FLOOR = 5;

/** Folders with floors; below them a file without a room is a problem. */
const HOUSE = /^(?:shared|services|launcher|cli)\//;

/** Files outside the house that a room may read as data. */
const COMMONS: ReadonlySet<string> = new Set(["package.json"]);

function roomOf(file: string): Room | undefined {
  const service = /^services\/[^/]+(?=\/)/.exec(file)?.[0];
  if (service !== undefined) return { path: service, floor: SERVICE_FLOOR };
  return ROOMS.find(({ path }) => file.startsWith(`${path}/`));
}

export function checkFloors(tree: Tree): Finding {
  const problems: string[] = [];
  for (const file of tree.files) {
    if (!HOUSE.test(file) || !SOURCE_FILE.test(file)) continue;
    const room = roomOf(file);
    if (room === undefined) {
      problems.push(`${file}: has no floor; give its folder a row in scripts/check/floors.ts`);
      continue;
    }
    for (const found of importsOf(parseSource(file, tree.read(file)))) {
      const refusal = refuse(file, room, found);
      if (refusal !== undefined) problems.push(`${file}:${found.line}: ${refusal}`);
    }
  }
  return { problems };
}

function refuse(file: string, from: Room, found: Import): string | undefined {
  const { specifier } = found;
  if (specifier === undefined) return "an import whose path is computed has no floor";
  const target = targetOf(file, specifier);
  return target === undefined ? refusePackage(from, specifier, found.names) : refuseFile(from, target);
}

/** The file a specifier names, undefined for a package. `cotal` is this package's own front door. */
function targetOf(file: string, specifier: string): string | undefined {
  if (specifier === "cotal") return "shared/client/index.ts";
  return specifier.startsWith(".") ? posix.join(posix.dirname(file), specifier) : undefined;
}

function refuseFile(from: Room, target: string): string | undefined {
  if (COMMONS.has(target)) return undefined;
  const to = roomOf(target);
  if (to === undefined) return `imports ${target}, which is outside the floors`;
  if (to.path === from.path) return undefined;
  if (from.only !== undefined) {
    return from.only.includes(target)
      ? undefined
      : `${from.path} may import only ${from.only.join(", ")}; not ${target}`;
  }
  if (to.floor < from.floor || (from.beside?.includes(to.path) ?? false)) return undefined;
  const direction = to.floor === from.floor ? "sideways" : "upwards";
  return `imports ${direction}: ${from.path} (floor ${from.floor}) takes ${target} (floor ${to.floor})`;
}

function refusePackage(from: Room, specifier: string, names: readonly string[] | undefined): string | undefined {
  if (from.packages === undefined) return undefined;
  const allowed = from.packages[packageOf(specifier)];
  if (allowed === undefined) {
    return `${from.path} may import only the packages ${Object.keys(from.packages).join(", ")}; not ${specifier}`;
  }
  if (allowed === "*") return undefined;
  const refused = names?.filter((name) => !allowed.includes(name)) ?? ["everything"];
  if (refused.length === 0) return undefined;
  return `${from.path} may take only ${allowed.join(", ")} from ${specifier}; not ${refused.join(", ")}`;
}

function packageOf(specifier: string): string {
  return specifier.split("/", specifier.startsWith("@") ? 2 : 1).join("/");
}
