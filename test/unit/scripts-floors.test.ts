import { describe, expect, test } from "vitest";
import { checkFloors } from "../../scripts/check/floors.ts";
import { memoryTree } from "../../scripts/check/tree.ts";

const problemsOf = (file: string, text: string): readonly string[] =>
  checkFloors(memoryTree({ [file]: text })).problems;

describe("floors", () => {
  test.each([
    ["a floor below", "shared/client/a.ts", `import { x } from "../protocol/base/names.ts";`],
    ["its own room", "services/auth/main.ts", `import { x } from "./edge/a.ts";`],
    ["broker beside trust", "shared/broker/a.ts", `import { x } from "../trust/jwt.ts";`],
    ["a service a library", "services/auth/edge/a.ts", `import { x } from "../../../shared/daemon/health.ts";`],
    ["the toolkit both sides", "shared/endpoint/a.ts", `import "../client/a.ts"; import "../serve/a.ts";`],
    ["cli the launcher", "cli/up.ts", `import { x } from "../launcher/main.ts";`],
    ["cli the package file", "cli/up.ts", `import about from "../package.json" with { type: "json" };`],
    ["daemon the errors", "shared/daemon/a.ts", `import { x } from "../protocol/base/errors.ts";`],
    [
      "protocol its three packages",
      "shared/protocol/a.ts",
      `import { z } from "zod"; import { createHash } from "node:crypto";`,
    ],
    ["what is only a comment", "shared/protocol/a.ts", `// import { x } from "../trust/jwt.ts";\nexport const a = 1;`],
    ["any room a package", "shared/broker/a.ts", `import { connect } from "node:net";`],
  ])("let %s in", (_what, file, text) => {
    expect(problemsOf(file, text)).toEqual([]);
  });

  test.each([
    ["an import upwards", "shared/protocol/a.ts", `import { x } from "../trust/jwt.ts";`, /upwards.*floor 0.*floor 2/],
    ["a type-only import upwards", "shared/grants/a.ts", `import { type X } from "../trust/jwt.ts";`, /upwards/],
    ["a re-export upwards", "shared/grants/a.ts", `export * from "../client/index.ts";`, /upwards/],
    ["a dynamic import upwards", "shared/trust/a.ts", `await import("../client/index.ts");`, /upwards/],
    ["an import type upwards", "shared/trust/a.ts", `type X = import("../client/index.ts").X;`, /upwards/],
    ["the package's own name upwards", "shared/trust/a.ts", `import { x } from "cotal";`, /upwards/],
    ["trust beside broker", "shared/trust/a.ts", `import { x } from "../broker/connect.ts";`, /sideways/],
    ["client beside serve", "shared/client/a.ts", `import { x } from "../serve/reply.ts";`, /sideways/],
    ["client the toolkit", "shared/client/a.ts", `import { x } from "../endpoint/a.ts";`, /upwards/],
    ["the toolkit a daemon", "shared/endpoint/a.ts", `import { x } from "../daemon/a.ts";`, /sideways/],
    ["a service a service", "services/auth/a.ts", `import { x } from "../delivery/a.ts";`, /sideways/],
    ["daemon a subject", "shared/daemon/a.ts", `import { x } from "../protocol/base/subjects.ts";`, /may import only/],
    ["a test", "shared/broker/a.ts", `import { x } from "../../test/support/nats.ts";`, /outside the floors/],
    ["a script", "cli/a.ts", `import { x } from "../scripts/check.ts";`, /outside the floors/],
    ["a computed import", "cli/a.ts", `const name = "x"; await import(name);`, /computed/],
    ["protocol a file", "shared/protocol/a.ts", `import { readFileSync } from "node:fs";`, /only the packages/],
    [
      "protocol randomness",
      "shared/protocol/a.ts",
      `import { createHash, randomUUID } from "node:crypto";`,
      /not randomUUID/,
    ],
    ["protocol all of crypto", "shared/protocol/a.ts", `import * as crypto from "node:crypto";`, /not everything/],
    ["protocol another package", "shared/protocol/a.ts", `import pino from "pino";`, /only the packages/],
    ["a folder without a floor", "shared/attic/a.ts", `export const a = 1;`, /has no floor/],
    ["a room without a floor", "shared/client/a.ts", `import { x } from "../attic/a.ts";`, /outside the floors/],
  ])("refuse %s", (_what, file, text, reason) => {
    const problems = problemsOf(file, text);
    expect(problems).toHaveLength(1);
    expect(problems[0]).toMatch(reason);
  });

  test("name the file and the line", () => {
    expect(problemsOf("cli/a.ts", `\n\nimport "../scripts/check.ts";`)[0]).toMatch(/^cli\/a\.ts:3: /);
  });
});
