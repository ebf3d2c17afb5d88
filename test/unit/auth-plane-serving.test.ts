/** The plane's `serving` command: who asks it, where, and how long what it enters may live (decisions H14, H45). */
import { describe, expect, test } from "vitest";
import type { PlaneParts } from "../../services/auth/plane/parts.ts";
import { createServing } from "../../services/auth/plane/serving.ts";
import { principal } from "../../shared/protocol/base/principals.ts";
import { ServingAnswer, ServingArgs } from "../../shared/protocol/endpoint/auth-shapes.ts";
import type { Caller } from "../../shared/protocol/endpoint/grammar.ts";
import { endpointKey } from "../../shared/protocol/ledger/endpoint-rows.ts";
import { memoryLedger } from "../support/memory-ledger.ts";
import { NOW_MS, OWNER, STRANGER, SYSTEM, memoryParts } from "../support/plane-parts.ts";
import { failure } from "../support/refusal.ts";
import { ENDPOINT, EXPIRES, OPERATOR, activeOf, credentialsOf, gateOf, userKey } from "../support/serving-parts.ts";

const UID = "p".repeat(26);
const caller = (owner: string, actor: string): Caller => ({ principal: principal(owner, actor), uid: UID });
const PROVISIONER = caller(SYSTEM, "provisioner");
const A = userKey("A");

function plane(over: Partial<PlaneParts> = {}) {
  const ledger = memoryLedger();
  const serving = createServing(memoryParts(ledger.store(), over));
  const ask = async (args: unknown, who: Caller = PROVISIONER): Promise<ServingAnswer> =>
    serving(who, ServingArgs.parse(args));
  return { ledger, ask };
}

const ASSIGN = { step: "assign", endpoint: ENDPOINT, owner: OWNER, by: OPERATOR };
const BEGIN = { step: "begin", endpoint: ENDPOINT, owner: OWNER, userKey: A };
const instance = { endpoint: ENDPOINT, instanceId: "i".repeat(26), epoch: 1 };
const OPEN = { step: "open", ...instance, opId: `serve-${A}`, registrationRevision: 7 };
const ENTER = { step: "enter", ...instance, owner: OWNER, userKey: A, expires: EXPIRES };
const HELD = { step: "held" };
const STEPS = [ASSIGN, BEGIN, OPEN, ENTER, HELD];

/** A begun instance, opened. */
async function opened() {
  const space = plane();
  await space.ask(ASSIGN);
  const { begun } = ServingAnswer.parse(await space.ask(BEGIN));
  if (begun === undefined) throw new Error("nothing was begun");
  const { instanceId, opId, epoch } = begun;
  await space.ask({ ...OPEN, instanceId, opId, epoch });
  return { ...space, instanceId, epoch };
}

describe("W131L.01 W131L.08 the ledger's half of a registration, asked for", () => {
  test("W131L.08 W131.15 the provisioner's steps make an instance with one credential", async () => {
    const { ask, ledger, instanceId, epoch } = await opened();
    expect(await ask({ ...ENTER, instanceId, epoch })).toEqual({});
    expect(gateOf(ledger, instanceId)).toMatchObject({
      state: "open",
      processEpoch: 1,
      principal: `${OWNER}.svc_${instanceId}`,
    });
    expect(activeOf(ledger)).toEqual(["A1"]);
    expect(ledger.row("auth", endpointKey.name(ENDPOINT))).toMatchObject({
      owner: OWNER,
      claimReference: `${SYSTEM}.operator`,
      space: "main",
    });
  });

  test("A.08 the gates that are held are told with whose they are and since when, and an open one is not", async () => {
    const { ask, ledger } = await opened();
    expect(await ask(HELD)).toEqual({ held: { gates: [], unreadable: [] } });
    const { begun } = await ask({ ...BEGIN, userKey: userKey("B") });
    ledger.put("auth", "epgate.com_acme_deploy.odd", {});
    expect(await ask(HELD)).toEqual({
      held: {
        gates: [
          {
            endpoint: ENDPOINT,
            instanceId: begun?.instanceId,
            owner: OWNER,
            kind: "activation",
            opId: `serve-${userKey("B")}`,
            sinceMs: NOW_MS,
          },
        ],
        unreadable: ["epgate.com_acme_deploy.odd"],
      },
    });
  });

  test("W132.16 nobody but the provisioner of the space asks, whatever he is called, and nothing is written", async () => {
    const { ledger, ask } = plane();
    const others = [
      caller(SYSTEM, "delivery"),
      caller(SYSTEM, "auth"),
      caller(SYSTEM, "operator"),
      caller(OWNER, "provisioner"),
      caller(STRANGER, "provisioner"),
      caller("local", "provisioner"),
      caller(OWNER, `svc_${instance.instanceId}`),
    ];
    for (const who of others) {
      for (const args of STEPS) {
        const error = await failure(ask(args, who));
        expect([who.principal, args.step, error.code, error.outcome]).toEqual([
          who.principal,
          args.step,
          "permission-denied",
          "not-executed",
        ]);
      }
    }
    expect(ledger.writes).toEqual([]);
  });

  test("W131L.01 where the plane is held elsewhere every step refuses, and nothing is written", async () => {
    const { ledger, ask } = plane({ holdsPlane: () => false });
    for (const args of STEPS) expect((await failure(ask(args))).code).toBe("unavailable");
    expect(ledger.writes).toEqual([]);
  });

  test("W131L.01 a credential that would live for longer than a serve credential is refused before its row", async () => {
    const { ask, ledger, instanceId, epoch } = await opened();
    const now = NOW_MS / 1000;
    for (const expires of [now + 600 + 61, now + 86_400, 2 ** 40]) {
      expect((await failure(ask({ ...ENTER, instanceId, epoch, expires }))).code).toBe("bad-request");
    }
    expect(credentialsOf(ledger)).toEqual([]);
    await ask({ ...ENTER, instanceId, epoch, expires: now + 660 });
    expect(credentialsOf(ledger).map(({ exp }) => exp)).toEqual([now + 660]);
  });

  test("W131.07 W131L.08 a takeover waits for the end of the credential, asks who is connected, and then goes on", async () => {
    let nowMs = NOW_MS;
    const asked: unknown[] = [];
    const { ask, ledger } = plane({
      now: () => nowMs,
      connectionsOf: (p) => {
        asked.push(p);
        return Promise.resolve({ kind: "none" });
      },
    });
    await ask(ASSIGN);
    const { begun } = await ask(BEGIN);
    const instanceId = begun?.instanceId ?? "";
    await ask({ ...OPEN, instanceId });
    await ask({ ...ENTER, instanceId });
    const takeover = { ...BEGIN, userKey: userKey("B"), instanceId };
    const error = await failure(ask(takeover));
    expect([error.code, error.details[0]?.["ms"]]).toEqual(["failed-precondition", 605_000]);
    expect([gateOf(ledger, instanceId).state, activeOf(ledger), asked]).toEqual(["frozen", [], []]);
    nowMs += 605_000;
    expect(await ask(takeover)).toEqual({ begun: { instanceId, opId: `take-${userKey("B")}`, epoch: 2 } });
    expect(asked).toEqual([principal(OWNER, `svc_${instanceId}`)]);
  });

  test("W131.15 what is no request is refused by its shape", () => {
    const bad = [
      { ...BEGIN, more: 1 },
      { ...BEGIN, instanceId: "short" },
      { ...BEGIN, userKey: "A".repeat(56) },
      { ...BEGIN, endpoint: "Com.Acme" },
      { ...ENTER, owner: "a.b" },
      { ...ENTER, epoch: 0 },
      { ...ENTER, expires: 0 },
      { ...OPEN, opId: "a.b" },
      { ...OPEN, registrationRevision: 0 },
      { ...ASSIGN, by: { owner: SYSTEM } },
      { step: "close", ...instance },
    ];
    expect(bad.filter((args) => ServingArgs.safeParse(args).success)).toEqual([]);
    for (const args of STEPS) expect(ServingArgs.parse(args)).toEqual(args);
  });
});
