/**
 * Refusals over a real broker, from this project's server to this project's client: every code of the
 * catalogue once, codes of extensions, and every field of a request that can be wrong (§13.3).
 */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import type { Connection } from "../../shared/broker/connect.ts";
import { type EndpointClient, createEndpointClient } from "../../shared/client/endpoint-client.ts";
import { CotalError, ErrorCode, Outcome, isErrorCode } from "../../shared/protocol/base/errors.ts";
import { compileContract } from "../../shared/protocol/contract/contract.ts";
import { defineCluster } from "../../shared/protocol/contract/declare.ts";
import { createValidators } from "../../shared/protocol/contract/validators.ts";
import { handlersOf } from "../../shared/serve/handlers.ts";
import { callerOn } from "../support/endpoint-rig.ts";
import { artifactsOf, startReads } from "../support/foreign-endpoint.ts";
import { type TestBroker, startBroker } from "../support/nats-server.ts";
import { failure } from "../support/refusal.ts";
import { type Desk, SPACE, ask, dial, startDesk, verdict } from "../support/serve-rig.ts";

const REFUSER = defineCluster({
  urn: "com.acme.refuser.v1",
  revision: 1,
  commands: [{ name: "refuse", class: "ephemeral", effect: "write", input: z.strictObject({ at: z.int() }) }],
});
const refuser = compileContract([REFUSER], createValidators());

let broker: TestBroker;
let asker: Connection;
let server: Connection;
let desk: Desk;
let client: EndpointClient;
/** What the handler throws, by the number it is asked for. */
let refusals: CotalError[] = [];
let ran = 0;
/** What the handler was told of each call's trace. */
const traces: unknown[] = [];

beforeAll(async () => {
  broker = await startBroker();
  asker = await dial(broker.url, "asker");
  server = await dial(broker.url, "server");
  desk = await startDesk(server.nc);
  await startDesk(server.nc, {
    endpoint: "com.acme.refuser",
    contract: refuser,
    handlers: handlersOf(REFUSER, {
      refuse: ({ at }, call) => {
        ran += 1;
        traces.push(call.traceparent);
        return Promise.reject(refusals[at] ?? new Error("there is no such refusal"));
      },
    }),
  });
  await startReads(server.nc, SPACE, { artifacts: artifactsOf(refuser), endpoints: [] });
  const { rail } = callerOn(asker.nc, asker.inboxPrefix, { rail: { space: SPACE } });
  client = createEndpointClient({ rail });
});
beforeEach(() => {
  refusals = [];
  ran = 0;
  traces.length = 0;
});
afterAll(async () => {
  await asker.close();
  await server.close();
  await broker.stop();
});

const refused = (...thrown: CotalError[]): Promise<CotalError[]> => {
  refusals = thrown;
  return Promise.all(thrown.map((_, at) => failure(client.call("com.acme.refuser", "refuse", { at }))));
};

/** §13.3, in its order. */
const CATALOGUE = [
  "bad-request",
  "unsupported-version",
  "op-mismatch",
  "class-mismatch",
  "target-mismatch",
  "sender-mismatch",
  "unauthenticated",
  "permission-denied",
  "not-found",
  "already-exists",
  "conflict",
  "contract-mismatch",
  "contract-invalid",
  "failed-precondition",
  "deadline-exceeded",
  "cancelled",
  "expired",
  "unavailable",
  "unimplemented",
  "resource-exhausted",
  "internal",
].filter(isErrorCode);

describe("W133.10 a refusal of a handler", () => {
  test("W133.10 the catalogue is the 21 codes of §13.3", () => {
    expect(CATALOGUE).toEqual(Object.values(ErrorCode));
    expect(CATALOGUE).toHaveLength(21);
  });

  test.each(CATALOGUE)(
    "W133.10 W133.08 %s reaches the caller as itself, with every outcome, its advice and its details",
    async (code) => {
      const outcomes = Object.values(Outcome);
      const details = [{ kind: "com.acme.why", place: 7 }];
      const told = await refused(
        ...outcomes.map((outcome) => new CotalError(code, `no: ${code}`, { outcome, next: "wait", details })),
      );
      expect(told.map((error) => [error.code, error.message, error.outcome, error.next, error.details])).toEqual(
        outcomes.map((outcome) => [code, `no: ${code}`, outcome, "wait", details]),
      );
      // A contract-mismatch that proves that nothing ran is asked again, once, under what is described now.
      expect(ran).toBe(told.length + (code === ErrorCode.ContractMismatch ? 1 : 0));
    },
  );

  test("W133.10 W133.08 one that says nothing of the effect is unknown; what is no refusal is internal, and shows nothing of itself", async () => {
    const [silent] = await refused(new CotalError(ErrorCode.Conflict, "taken"));
    expect([silent?.code, silent?.outcome]).toEqual(["conflict", "unknown"]);
    const fault = await failure(client.call("com.acme.refuser", "refuse", { at: 1000 }));
    expect([fault.code, fault.outcome]).toEqual(["internal", "unknown"]);
  });

  test("W133.10 a code of an extension comes through beside the nearest of the catalogue; past 64 bytes, or without a domain, it does not", async () => {
    const longest = `com.acme.${"x".repeat(55)}`;
    const extensions = ["com.acme.too-hot", longest, `${longest}x`, "toohot", "com.acme.too hot"];
    const told = await refused(
      ...extensions.map((extension) => new CotalError(ErrorCode.Internal, "no", { extension })),
    );
    // What a code of nobody's would have cost the caller is the refusal itself.
    expect(told.map((error) => [error.code, error.extension, error.message])).toEqual([
      ["internal", "com.acme.too-hot", "no"],
      ["internal", longest, "no"],
      ["internal", undefined, "no"],
      ["internal", undefined, "no"],
      ["internal", undefined, "no"],
    ]);
    expect(Buffer.byteLength(longest)).toBe(64);
  });
});

test("W133.06 the trace of a call comes to its handler as it was sent, on a cast too; without one there is none", async () => {
  const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  refusals = [new CotalError(ErrorCode.Conflict, "taken")];
  await failure(client.call("com.acme.refuser", "refuse", { at: 0 }, { traceparent }));
  await failure(client.call("com.acme.refuser", "refuse", { at: 0 }));
  await client.cast("com.acme.refuser", "refuse", { at: 0 }, { traceparent });
  await expect.poll(() => ran).toBe(3);
  expect(traces).toEqual([traceparent, undefined, traceparent]);
});

describe("W133.01 one field at a time", () => {
  const op = { endpoint: "com.acme.desk", command: "put" };
  const from = { id: "local.asker", name: "asker" };
  const cases: readonly (readonly [what: string, over: object, code: string])[] = [
    ["v", { v: undefined }, "unsupported-version"],
    ["v", { v: 0 }, "unsupported-version"],
    ["v", { v: 2 }, "unsupported-version"],
    ["v", { v: "1" }, "unsupported-version"],
    ["id", { id: undefined }, "bad-request"],
    ["id", { id: "" }, "bad-request"],
    ["id", { id: "a.b" }, "bad-request"],
    ["id", { id: "i".repeat(65) }, "bad-request"],
    ["id", { id: 7 }, "bad-request"],
    ["op", { op: undefined }, "bad-request"],
    ["op", { op: "put" }, "bad-request"],
    ["op.endpoint", { op: { ...op, endpoint: undefined } }, "bad-request"],
    ["op.endpoint", { op: { ...op, endpoint: "com_acme_desk" } }, "op-mismatch"],
    ["op.command", { op: { ...op, command: "Put" } }, "bad-request"],
    ["op.command", { op: { ...op, command: "ping" } }, "op-mismatch"],
    ["op digests", { op: { ...op, inputDigest: "sha256:x", outputDigest: "sha256:x" } }, "bad-request"],
    ["class", { class: undefined }, "bad-request"],
    ["class", { class: "record" }, "bad-request"],
    ["class", { class: "journal" }, "class-mismatch"],
    ["replyExpected", { replyExpected: undefined }, "bad-request"],
    ["replyExpected", { replyExpected: 1 }, "bad-request"],
    ["goalId", { goalId: "g" }, "bad-request"],
    ["goalId", { goalId: "" }, "bad-request"],
    ["target", { target: {} }, "target-mismatch"],
    ["bind", { bind: {} }, "bad-request"],
    ["bind", { bind: { instanceId: "short", epoch: 3 } }, "bad-request"],
    ["bind", { bind: { instanceId: "i".repeat(26), epoch: -1 } }, "bad-request"],
    ["args", { args: [] }, "bad-request"],
    ["args", { args: undefined }, "bad-request"],
    ["from", { from: undefined }, "bad-request"],
    ["from", { from: "local.asker" }, "bad-request"],
    ["from.id", { from: { ...from, id: undefined } }, "bad-request"],
    ["from.id", { from: { ...from, id: "local-asker" } }, "sender-mismatch"],
    ["deadlineMs", { deadlineMs: undefined }, "bad-request"],
    ["deadlineMs", { deadlineMs: 0 }, "bad-request"],
    ["deadlineMs", { deadlineMs: 600_001 }, "bad-request"],
    ["deadlineMs", { deadlineMs: 1.5 }, "bad-request"],
    ["deadlineMs", { deadlineMs: "5000" }, "bad-request"],
    ["correlation", { correlation: "trace" }, "bad-request"],
    ["correlation", { correlation: { traceparent: 7 } }, "bad-request"],
    ["auth", { auth: {} }, "bad-request"],
  ];

  test.each(cases)("W133.01 %s as in %j is %s, and nothing ran", async (_, over, code) => {
    Object.assign(desk.counts, { put: 0 });
    expect(await verdict(asker.nc, "put", { over })).toBe(`${code} not-executed`);
    expect(desk.counts.put).toBe(0);
  });

  test("W133.01 W133.07 the id of a request comes back with its answer, the longest too; a refusal of what has none echoes none", async () => {
    for (const id of ["a", "i".repeat(64), "A-z_9"]) {
      const [heard] = await ask(asker.nc, "put", { over: { id } });
      expect(heard?.reply).toMatchObject({ id, ok: true });
      const [no] = await ask(asker.nc, "put", { over: { id, v: 2 } });
      expect(no?.reply).toMatchObject({ id, ok: false });
    }
    const [none] = await ask(asker.nc, "put", { over: { id: "a.b" } });
    expect(none?.reply).toMatchObject({ id: "", ok: false });
  });

  test("W133.01 W11.01 fields that nobody knows are ignored, at every level", async () => {
    const over = { later: 1, from: { ...from, later: 1 }, correlation: { later: 1 } };
    expect(await verdict(asker.nc, "put", { over })).toBe("ok");
  });
});
