/** What an endpoint says of itself, to whom, and what it is not served with (supplement A). */
import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import type { Connection } from "../../shared/broker/connect.ts";
import { OPEN_OWNER, drawLifecycleUid, principal } from "../../shared/protocol/base/principals.ts";
import { compileContract } from "../../shared/protocol/contract/contract.ts";
import { type ClusterDeclaration, defineCluster } from "../../shared/protocol/contract/declare.ts";
import { type TrustedView, readDescriptor } from "../../shared/protocol/contract/descriptor.ts";
import { createValidators } from "../../shared/protocol/contract/validators.ts";
import type { ServeOptions } from "../../shared/serve/serve.ts";
import { type TestBroker, startBroker } from "../support/nats-server.ts";
import { failure } from "../support/refusal.ts";
import {
  DESK,
  ENDPOINT,
  ask,
  bodyOf,
  contract,
  dial,
  issued,
  legacy,
  startDesk,
  verdict,
} from "../support/serve-rig.ts";

let broker: TestBroker;
let asker: Connection;
let server: Connection;
const guest = { principal: principal(OPEN_OWNER, "guest"), uid: drawLifecycleUid(randomBytes) };

beforeAll(async () => {
  broker = await startBroker();
  asker = await dial(broker.url, "asker");
  server = await dial(broker.url, "server");
});
afterAll(async () => {
  await asker.close();
  await server.close();
  await broker.stop();
});

const bare = { op: { endpoint: ENDPOINT, command: "describe" }, args: undefined };

async function described(caller = legacy): Promise<ReturnType<typeof readDescriptor>> {
  const [heard] = await ask(asker.nc, "describe", { caller, over: { ...bodyOf("describe", caller), ...bare } });
  expect(heard?.reply).toMatchObject({ ok: true });
  return readDescriptor(heard?.reply["data"]);
}

/** Serves with `over` for as long as the test runs. */
async function withDesk<T>(over: Partial<ServeOptions>, run: () => Promise<T>): Promise<T> {
  const desk = await startDesk(server.nc, over);
  try {
    return await run();
  } finally {
    await desk.stop();
  }
}

describe("what it says of itself", () => {
  test("PA.10 a public descriptor shows all of the contract to everybody, with the registration's revision", async () => {
    await withDesk({}, async () => {
      for (const caller of [legacy, issued, guest]) {
        const shown = await described(caller);
        expect(shown).toMatchObject({ endpoint: ENDPOINT, protocol: { v: 2 }, registrationRevision: 11 });
        expect(shown.commands.map(({ name }) => name)).toEqual(DESK.commands.map(({ name }) => name));
        expect(shown.clusters).toEqual([{ urn: "com.acme.desk.v1", revision: 4, digest: contract.clusterDigests[0] }]);
      }
    });
  });

  test("PA.10 two callers are each shown what the trusted view admits, whatever they claim", async () => {
    const views: Record<string, TrustedView> = {
      asker: { admits: (command, mode) => command === "put" || (command === "aim" && mode === "self") },
      guest: { admits: (command) => command === "ping" },
    };
    const asked: string[] = [];
    const view: ServeOptions["view"] = ({ principal: { actor } }) => {
      asked.push(actor);
      return Promise.resolve(views[actor]);
    };
    await withDesk({ publicDescriptor: false, view }, async () => {
      const mine = await described();
      expect(mine.commands.map(({ name, modes }) => [name, modes])).toEqual([
        ["put", undefined],
        ["aim", ["self"]],
      ]);
      const theirs = await described(guest);
      expect(theirs.commands.map(({ name }) => name)).toEqual(["ping"]);
      const claims = { ...bare, auth: "admin", view: "all", capabilities: ["put"] };
      const [heard] = await ask(asker.nc, "describe", {
        caller: guest,
        over: { ...bodyOf("describe", guest), ...claims },
      });
      expect(heard?.reply["data"]).toEqual(theirs);
      // Asked anew for every answer: what has changed holds at once.
      views["guest"] = { admits: () => false };
      expect(await described(guest)).toMatchObject({ commands: [], clusters: [] });
      expect(asked).toEqual(["asker", "guest", "guest", "guest"]);
    });
  });

  test.each<[string, Partial<ServeOptions>]>([
    ["no view can be had", { publicDescriptor: false }],
    ["there is none just now", { publicDescriptor: false, view: () => Promise.resolve(undefined) }],
    ["it is not registered yet", { registrationRevision: () => undefined }],
  ])("PA.10 where %s it is unavailable, and every command is served", async (_, over) => {
    await withDesk(over, async () => {
      expect(await verdict(asker.nc, "describe", { over: bare })).toBe("unavailable not-executed");
      expect(await verdict(asker.nc, "put")).toBe("ok");
    });
  });

  test("a view that can't be read is a fault before anything ran, and the server goes on", async () => {
    await withDesk(
      { publicDescriptor: false, view: () => Promise.reject(new Error("the store is away")) },
      async () => {
        expect(await verdict(asker.nc, "describe", { over: bare })).toBe("internal not-executed");
        expect(await verdict(asker.nc, "put")).toBe("ok");
      },
    );
  });
});

describe("what is not served", () => {
  const one = (command: Partial<ClusterDeclaration["commands"][number]>): ServeOptions["contract"] =>
    compileContract(
      [
        defineCluster({
          urn: "com.acme.odd.v1",
          revision: 1,
          commands: [{ name: "odd", class: "ephemeral", effect: "read", output: z.null(), ...command }],
        }),
      ],
      createValidators(),
    );
  const handlers = { odd: () => Promise.resolve(null) };

  test.each<[string, Partial<ServeOptions>]>([
    [
      "a command with the guard trait",
      { contract: one({ traits: [{ urn: "ai.cotal.guarded", value: true }] }), handlers },
    ],
    ["a command with a price", { contract: one({ traits: [{ urn: "ai.cotal.priced", value: 1 }] }), handlers }],
    [
      "a journal command",
      { contract: one({ class: "journal", admissionCeiling: { maxBytes: 1, maxDepth: 1, maxItems: 1 } }), handlers },
    ],
    ["a command without a handler", { contract: one({}), handlers: {} }],
    [
      "a handler that is only inherited",
      { contract: one({ name: "valueof" }), handlers: Object.create({ valueof: 1 }) as object },
    ],
    ["a handler without a command", { contract: one({}), handlers: { ...handlers, other: handlers.odd } }],
  ] as never)(
    "%s: the endpoint is refused before it subscribes to anything",
    async (_, over: Partial<ServeOptions>) => {
      const before = server.nc.stats().outMsgs;
      expect(await failure(startDesk(server.nc, over))).toMatchObject({
        code: "failed-precondition",
        outcome: "not-executed",
        next: "mend its contract or its handlers, and start it again",
      });
      expect(server.nc.stats().outMsgs).toBe(before);
      expect(await verdict(asker.nc, "odd")).toBe("silence");
    },
  );

  test("a command with a target that nobody checks is not served; one for the caller himself is", async () => {
    const { checkTarget: _, ...over } = {
      checkTarget: undefined,
      contract: one({ modes: ["self", "owner"] }),
      handlers,
    };
    const options = { ...over, checkTarget: undefined } as unknown as Partial<ServeOptions>;
    expect(await failure(startDesk(server.nc, options))).toMatchObject({ code: "failed-precondition" });
    const self = { ...options, contract: one({ modes: ["self"] }) };
    await (await startDesk(server.nc, self)).stop();
  });

  test("another trait is no hindrance", async () => {
    const marked = one({ traits: [{ urn: "com.acme.slow", value: 1 }] });
    await withDesk({ contract: marked, handlers }, async () => {
      const { inputDigest, outputDigest } = marked.commands.get("odd")?.document ?? {};
      const op = { endpoint: ENDPOINT, command: "odd", inputDigest, outputDigest };
      expect(await verdict(asker.nc, "odd", { over: { op, args: undefined } })).toBe("ok");
    });
  });
});
