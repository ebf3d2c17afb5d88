/** What an endpoint may be served with at all: a contract that could not be kept is refused before the first request. */
import { describe, expect, test } from "vitest";
import { compileContract } from "../../shared/protocol/contract/contract.ts";
import type { ClusterDeclaration, CommandDeclaration } from "../../shared/protocol/contract/declare.ts";
import { createValidators } from "../../shared/protocol/contract/validators.ts";
import { servedCommands } from "../../shared/serve/served.ts";
import { MODES } from "../support/endpoint-subjects.ts";
import { refusal } from "../support/refusal.ts";

const validators = createValidators();
const run: CommandDeclaration = { name: "run", class: "ephemeral", effect: "write" };
const handle = () => Promise.resolve(undefined);
const clusterOf = (over: Partial<CommandDeclaration>): ClusterDeclaration => ({
  urn: "com.acme.job.v1",
  revision: 1,
  commands: [{ ...run, ...over }],
});
const served = (over: Partial<CommandDeclaration>, checksTargets = true) =>
  servedCommands(compileContract([clusterOf(over)], validators), { run: handle }, checksTargets);

function expectUnservable(over: Partial<CommandDeclaration>, words: string, checksTargets = true): void {
  const error = refusal(() => served(over, checksTargets));
  expect([error.code, error.outcome, error.message]).toEqual([
    "failed-precondition",
    "not-executed",
    expect.stringContaining(words),
  ]);
}

describe("a contract that is served", () => {
  test("a lawful one has its handler and what a request has to agree with", () => {
    const { inputDigest, outputDigest } =
      compileContract([clusterOf({ modes: ["self"] })], validators).commands.get("run")?.document ?? {};
    expect(served({ modes: ["self"] }).get("run")).toMatchObject({
      contract: { class: "ephemeral", modes: ["self"], action: false, inputDigest, outputDigest },
      handle,
    });
  });

  test.each(["ai.cotal.guarded", "ai.cotal.priced"])(
    "PA.11 a command that carries %s is not: its signature can't be verified, and it would run unguarded",
    (urn) => {
      expectUnservable({ traits: [{ urn, value: 1 }] }, urn);
      expectUnservable(
        {
          traits: [
            { urn: "com.acme.free", value: 1 },
            { urn, value: null },
          ],
        },
        urn,
      );
      expect(served({ traits: [{ urn: "com.acme.free", value: 1 }] }).size).toBe(1);
    },
  );

  test("W133.03 a journal command is not: its work is not asked for on the rails", () => {
    const admissionCeiling = { maxBytes: 1, maxDepth: 1, maxItems: 1 };
    expectUnservable({ class: "journal", admissionCeiling }, "journal");
  });

  const foreign = MODES.filter((mode) => mode !== "self");
  test.each(foreign)("W132.09 a target in mode %s needs somebody who says whether it is still so", (mode) => {
    expect(served({ modes: [mode] }).size).toBe(1);
    expectUnservable({ modes: [mode] }, "target", false);
    expectUnservable({ modes: ["self", mode] }, "target", false);
  });

  test("W132.09 a target that is the caller needs nobody", () => {
    expect(served({ modes: ["self"] }, false).size).toBe(1);
  });

  test("a command without a handler, and a handler without a command, are not", () => {
    const contract = compileContract([clusterOf({})], validators);
    for (const handlers of [{}, { run: handle, walk: handle }, { constructor: handle }]) {
      expect(refusal(() => servedCommands(contract, handlers, true)).code).toBe("failed-precondition");
    }
  });
});
