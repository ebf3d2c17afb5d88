/** Which gates of serving instances an operator is told of (A.08, decision 43): the dead ones, and no registration at work. */
import { describe, expect, test } from "vitest";
import { endpointGates } from "../../services/provisioner/check/endpoint-gates.ts";
import { CotalError, ErrorCode } from "../../shared/protocol/base/errors.ts";
import { endpointKey } from "../../shared/protocol/ledger/endpoint-rows.ts";
import { memoryLedger } from "../support/memory-ledger.ts";
import { NOW_MS, OWNER } from "../support/plane-parts.ts";
import { ENDPOINT, assigned, gateOf, registered, servingOver, userKey } from "../support/serving-parts.ts";

const MINUTE = 60_000;
const LIFE = 600;
const A = userKey("A");
const B = userKey("B");

/** A space, and what its check says so many milliseconds after every row was written. */
function world() {
  const ledger = memoryLedger();
  const pages: number[] = [];
  const gatePage = (cursor = 0) => {
    pages.push(cursor);
    const keys = ledger.keys("auth").filter((key) => key.startsWith("epgate."));
    const rows = keys.slice(cursor, cursor + 1).map((key) => ({ key, timeMs: NOW_MS, value: ledger.row("auth", key) }));
    return Promise.resolve({ rows, ...(cursor + 1 < keys.length ? { cursor: cursor + 1 } : {}) });
  };
  const serving = servingOver(ledger.store(), { gatePage });
  const found = (afterMs: number) => endpointGates({ ledger: serving, lifeSeconds: LIFE }, NOW_MS + afterMs);
  return { ledger, serving, pages, found };
}

/** A first registration that died with its gate shut. */
async function unborn() {
  const made = world();
  await assigned(made.serving);
  const { instanceId } = await made.serving.begin({ endpoint: ENDPOINT, owner: OWNER, userKey: A });
  return { ...made, instanceId };
}

/** An instance that serves, and one that was about to take its place. */
async function taken() {
  const made = world();
  await assigned(made.serving);
  const { instanceId } = await registered(made.serving, { userKey: A });
  await made.serving.begin({ endpoint: ENDPOINT, owner: OWNER, userKey: B, instanceId });
  return { ...made, instanceId };
}

describe("A.08 a gate of a serving instance that stands frozen", () => {
  test("A.08 a dead first registration is named, with whose it is, since when, and what completes it, which then it does", async () => {
    const { found, serving, instanceId } = await unborn();
    const [finding, ...more] = await found(MINUTE);
    expect(more).toEqual([]);
    expect(finding).toMatchObject({ check: "endpoint gate", level: "warning" });
    for (const named of [instanceId, ENDPOINT, OWNER, `activation serve-${A}`, new Date(NOW_MS).toISOString()]) {
      expect(finding?.message).toContain(named);
    }
    expect(finding?.next).toContain(`instanceId: "${instanceId}"`);
    await registered(serving, { userKey: B, instanceId });
    expect(await found(MINUTE)).toEqual([]);
  });

  test("A.08 a registration that is under way is no finding, nor is an open gate however old", async () => {
    const { found, serving } = await unborn();
    expect(await found(MINUTE - 1)).toEqual([]);
    await registered(serving, { userKey: A });
    expect(await found(1e12)).toEqual([]);
  });

  test("A.08 a takeover may wait for the end of its predecessor's credential before it is told", async () => {
    const { found, instanceId } = await taken();
    expect(await found(LIFE * 1000 + MINUTE - 1)).toEqual([]);
    expect(await found(LIFE * 1000 + MINUTE)).toMatchObject([
      {
        message: expect.stringContaining(`takeover take-${B}`) as string,
        next: expect.stringContaining(instanceId) as string,
      },
    ]);
  });

  test("A.08 an end that stands still sends whoever serves to a new instance: a retirement is completed by no registration", async () => {
    const { ledger, found, instanceId } = await taken();
    const key = endpointKey.gate(ENDPOINT, instanceId);
    ledger.put("auth", key, { ...gateOf(ledger, instanceId), op: { opId: "end-1", kind: "retirement" } });
    expect(await found(MINUTE)).toMatchObject([{ next: expect.stringContaining("without an instance id") as string }]);
  });

  test("A.08 every page is looked at, and a row that is no gate is named by its key", async () => {
    const { ledger, serving, found, pages } = await unborn();
    ledger.put("auth", "epgate.com_acme_deploy.odd", { state: "open" });
    await serving.begin({ endpoint: ENDPOINT, owner: OWNER, userKey: B });
    const messages = (await found(MINUTE)).map(({ message }) => message);
    expect(messages).toEqual([
      expect.stringContaining(`serve-${A}`),
      expect.stringContaining("epgate.com_acme_deploy.odd"),
      expect.stringContaining(`serve-${B}`),
    ]);
    expect(pages).toEqual([0, 1, 2]);
  });

  test("A.08 a ledger that can't be asked is a finding, and no end of the check", async () => {
    const why = new CotalError(ErrorCode.Unavailable, "auth does not answer", { next: "start the auth service" });
    const ledger = { held: () => Promise.reject(why) };
    expect(await endpointGates({ ledger, lifeSeconds: LIFE }, NOW_MS)).toEqual([
      {
        check: "endpoint gate",
        level: "error",
        message: "no gate of a serving instance was looked at: auth does not answer",
        next: "start the auth service",
      },
    ]);
    expect(await endpointGates(undefined, NOW_MS)).toEqual([]);
  });
});
