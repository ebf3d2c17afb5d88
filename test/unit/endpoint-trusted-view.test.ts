/** The trusted view of whoever serves: what the space says of a caller, and when it is asked (PA.10, H21). */
import { describe, expect, test } from "vitest";
import { z } from "zod";
import type { Call } from "../../shared/client/caller.ts";
import { type TrustedViewOptions, trustedView } from "../../shared/endpoint/trusted-view.ts";
import { CotalError, ErrorCode } from "../../shared/protocol/base/errors.ts";
import { compileContract } from "../../shared/protocol/contract/contract.ts";
import { defineCluster } from "../../shared/protocol/contract/declare.ts";
import { cut, describeFor } from "../../shared/protocol/contract/descriptor.ts";
import { createValidators } from "../../shared/protocol/contract/validators.ts";
import { AuthzMode, type Caller } from "../../shared/protocol/endpoint/grammar.ts";
import { failure, refusal } from "../support/refusal.ts";

const ENDPOINT = "com.example.echo";
const contract = compileContract(
  [
    defineCluster({
      urn: "com.example.echo.v1",
      revision: 1,
      commands: [
        { name: "say", class: "ephemeral", effect: "read", output: z.string() },
        { name: "audit", class: "ephemeral", effect: "read", capability: "audit", output: z.string() },
        { name: "poke", class: "ephemeral", effect: "write", modes: ["self", "owner", "any", "exact"] },
      ],
    }),
  ],
  createValidators(),
);

const caller = (actor: string): Caller => ({
  principal: { owner: "local", actor },
  uid: "u".repeat(26),
});

type Answer = readonly string[] | null | "away";

/** A space that answers by actor; its clock stands until it is moved. */
function rig(answers: Record<string, Answer>, over: Partial<TrustedViewOptions> = {}) {
  const asked: unknown[] = [];
  const faults: string[] = [];
  const clock = { now: 0 };
  const call: Call = async (endpoint, command, args, options) => {
    asked.push([endpoint, command, args, options]);
    await Promise.resolve();
    const { actor } = (args as { caller: { actor: string } }).caller;
    const answer = answers[actor];
    if (answer === "away" || answer === undefined) throw new CotalError(ErrorCode.Unavailable, "nobody answers");
    return { data: { capabilities: answer }, instanceId: "p".repeat(26), epoch: 1 };
  };
  const view = trustedView({
    call,
    endpoint: ENDPOINT,
    contract,
    now: () => clock.now,
    onFault: ({ code }) => faults.push(code),
    ...over,
  });
  return { view, asked, clock, faults, answers };
}

const shown = async ({ view }: ReturnType<typeof rig>, actor: string) => {
  const described = { endpoint: ENDPOINT, registrationRevision: 1, contract };
  const { commands } = describeFor(described, await view(caller(actor)));
  return commands.map(({ name, modes }) => (modes === undefined ? name : `${name} ${modes.join(" ")}`));
};

describe("the cut", () => {
  test("PA.10 each caller is shown what the space says of that caller, and of this endpoint alone", async () => {
    const at = rig({
      plain: [ENDPOINT],
      auditor: [`${ENDPOINT}:audit`],
      both: [ENDPOINT, `${ENDPOINT}:audit`],
      scatterer: [`${ENDPOINT}@all`],
      none: [],
      elsewhere: ["com.example.other", "com.example.other:audit", "serve", "audit"],
      longer: ["com.example.echo.more", "com.example.ech"],
    });
    expect(await shown(at, "plain")).toEqual(["say", "poke owner self"]);
    expect(await shown(at, "auditor")).toEqual(["audit"]);
    expect(await shown(at, "both")).toEqual(["say", "audit", "poke owner self"]);
    expect(await shown(at, "scatterer")).toEqual(["say", "poke owner self"]);
    for (const actor of ["none", "elsewhere", "longer"]) expect(await shown(at, actor)).toEqual([]);
  });

  test("PA.10 modes that no capability opens are not shown, and neither is a command that there is not", async () => {
    const view = await rig({ plain: [ENDPOINT] }).view(caller("plain"));
    const open = Object.values(AuthzMode).filter((mode) => view?.admits("poke", mode) === true);
    expect(open).toEqual(["self", "owner"]);
    expect(view?.admits("nothing", undefined)).toBe(false);
    expect(view?.admits("constructor", undefined)).toBe(false);
  });

  test("in an open space, which limits nobody, all is shown", async () => {
    const at = rig({ anybody: null });
    expect(await shown(at, "anybody")).toEqual(["say", "audit", "poke any exact owner self"]);
  });
});

describe("where it can't be had", () => {
  test("PA.10 describe is unavailable, the reason is told, and the next question is asked afresh", async () => {
    const at = rig({ plain: "away" });
    expect(await failure(shown(at, "plain"))).toMatchObject({ code: "unavailable", outcome: "not-executed" });
    expect(at.faults).toEqual(["unavailable"]);
    at.answers["plain"] = [ENDPOINT];
    expect(await shown(at, "plain")).toEqual(["say", "poke owner self"]);
  });

  test("PA.10 an answer of another shape is no view", async () => {
    const call: Call = () => Promise.resolve({ data: { capabilities: "all" }, instanceId: "p".repeat(26), epoch: 1 });
    expect(await rig({}, { call }).view(caller("plain"))).toBeUndefined();
  });

  test("PA.10 whoever comes with an issued generation has none: of that authority nobody is asked", async () => {
    const at = rig({ plain: [ENDPOINT] });
    const issued = { ...caller("plain"), generation: "0".repeat(32) };
    expect(await at.view(issued)).toBeUndefined();
    expect(at.asked).toEqual([]);
    expect(refusal(() => describeFor({ endpoint: ENDPOINT, registrationRevision: 1, contract }, undefined)).code).toBe(
      "unavailable",
    );
  });

  test("a call that throws at once is no view, and does not stick", async () => {
    let broken = true;
    const call: Call = () => {
      if (broken) throw new Error("no rail");
      return Promise.resolve({ data: { capabilities: [] }, instanceId: "p".repeat(26), epoch: 1 });
    };
    const at = rig({}, { call });
    expect(await at.view(caller("plain"))).toBeUndefined();
    broken = false;
    expect(await at.view(caller("plain"))).toBeDefined();
  });
});

describe("how often it asks", () => {
  test("PA.10 equal questions at one time are one; a second later it is asked again, and what has changed holds", async () => {
    const at = rig({ plain: [ENDPOINT], other: [] });
    await Promise.all([...Array.from({ length: 50 }, () => at.view(caller("plain"))), at.view(caller("other"))]);
    expect(at.asked).toHaveLength(2);
    expect(at.asked[0]).toEqual([
      "provisioner",
      "caller-view",
      { endpoint: ENDPOINT, caller: { owner: "local", actor: "plain", uid: "u".repeat(26) } },
      { deadlineMs: 2000 },
    ]);
    at.answers["plain"] = [];
    at.clock.now = 999;
    expect(await shown(at, "plain")).toEqual(["say", "poke owner self"]);
    at.clock.now = 1000;
    expect(await shown(at, "plain")).toEqual([]);
    expect(at.asked).toHaveLength(3);
  });

  test("another lifecycle of the same name is another question", async () => {
    const at = rig({ plain: [ENDPOINT] });
    await at.view(caller("plain"));
    await at.view({ ...caller("plain"), uid: "v".repeat(26) });
    expect(at.asked).toHaveLength(2);
  });

  test("so many questions at one time, and no more: beyond them there is no view", async () => {
    let asked = 0;
    const call: Call = () => {
      asked += 1;
      return new Promise(() => undefined);
    };
    const at = rig({}, { call });
    const views = Array.from({ length: 300 }, (_, n) => at.view(caller(`a${n}`)));
    expect(asked).toBe(256);
    expect(await views[299]).toBeUndefined();
  });

  test("the whole is never handed to a cut that lacks a view", () => {
    const whole = describeFor(
      { endpoint: ENDPOINT, registrationRevision: 1, contract, publicDescriptor: true },
      undefined,
    );
    expect(cut(whole, { admits: () => false })).toMatchObject({ commands: [], clusters: [] });
  });
});
