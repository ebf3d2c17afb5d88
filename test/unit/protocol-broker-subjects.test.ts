/** The broker's own subjects spelled by hand, the split of an ack subject, and the error catalogue. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  AckBody,
  jsAck,
  jsApi,
  kvAll,
  kvKey,
  kvKeyOf,
  nakBody,
  nextBody,
  objectChunks,
  objectMeta,
  parseAck,
  sys,
} from "../../shared/protocol/base/broker-subjects.ts";
import { CotalError, ErrorCode, badRequest, isErrorCode, toCotalError } from "../../shared/protocol/base/errors.ts";
import { nearMissText } from "../support/near-miss.ts";

test("the API's subjects, spelled by hand", () => {
  expect(jsApi).toMatchObject({ all: "$JS.API.>", info: "$JS.API.INFO" });
  expect(
    [
      jsApi.streamCreate("S"),
      jsApi.streamUpdate("S"),
      jsApi.streamInfo("S"),
      jsApi.streamDelete("S"),
      jsApi.streamPurge("S"),
      jsApi.messageGet("S"),
      jsApi.messageDelete("S"),
      jsApi.directGet("S"),
      jsApi.directGetLast("S", "a.b"),
      jsApi.consumerCreate("S", "C"),
      jsApi.consumerCreateFiltered("S", "C", "a.>"),
      jsApi.consumerCreateBare("S"),
      jsApi.consumerCreateDurable("S", "C"),
      jsApi.consumerInfo("S", "C"),
      jsApi.consumerDelete("S", "C"),
      jsApi.consumerNames("S"),
      jsApi.consumerList("S"),
      jsApi.next("S", "C"),
    ].map((subject) => subject.replace("$JS.API.", "")),
  ).toEqual([
    "STREAM.CREATE.S",
    "STREAM.UPDATE.S",
    "STREAM.INFO.S",
    "STREAM.DELETE.S",
    "STREAM.PURGE.S",
    "STREAM.MSG.GET.S",
    "STREAM.MSG.DELETE.S",
    "DIRECT.GET.S",
    "DIRECT.GET.S.a.b",
    "CONSUMER.CREATE.S.C",
    "CONSUMER.CREATE.S.C.a.>",
    "CONSUMER.CREATE.S",
    "CONSUMER.DURABLE.CREATE.S.C",
    "CONSUMER.INFO.S.C",
    "CONSUMER.DELETE.S.C",
    "CONSUMER.NAMES.S",
    "CONSUMER.LIST.S",
    "CONSUMER.MSG.NEXT.S.C",
  ]);
  expect([jsAck.of("S", "C"), jsAck.stream("S")]).toEqual(["$JS.ACK.S.C.>", "$JS.ACK.S.>"]);
  expect([kvKey("b", "k.l"), kvAll("b"), objectChunks("b", "i"), objectMeta("b", "n")]).toEqual([
    "$KV.b.k.l",
    "$KV.b.>",
    "$O.b.C.i",
    "$O.b.M.n",
  ]);
  expect([sys.claimsUpdate, sys.claimsLookup("A"), sys.ping("VARZ"), sys.userAuth]).toEqual([
    "$SYS.REQ.CLAIMS.UPDATE",
    "$SYS.REQ.ACCOUNT.A.CLAIMS.LOOKUP",
    "$SYS.REQ.SERVER.PING.VARZ",
    "$SYS.REQ.USER.AUTH",
  ]);
});

test("a key is read off the subject of its own bucket only", () => {
  expect(kvKeyOf("b", "$KV.b.local.alice")).toBe("local.alice");
  for (const subject of ["$KV.bb.k", "$KV.b", "KV.b.k", "x.$KV.b.k", ""]) {
    expect(kvKeyOf("b", subject)).toBeUndefined();
  }
});

describe("acks", () => {
  test("the short form and the long ones", () => {
    const want = {
      stream: "DM_main",
      consumer: "dm_x",
      deliveryCount: 2,
      streamSequence: 30,
      consumerSequence: 4,
      pending: 5,
    };
    expect(parseAck("$JS.ACK.DM_main.dm_x.2.30.4.1700000000000000000.5")).toEqual(want);
    expect(parseAck("$JS.ACK._.ACCHASH.DM_main.dm_x.2.30.4.1700000000000000000.5.tok")).toEqual(want);
    expect(parseAck("$JS.ACK.hub.ACCHASH.DM_main.dm_x.2.30.4.1700000000000000000.5.a.b")).toEqual(want);
  });

  test.each([
    undefined,
    "",
    "$JS.ACK.",
    "$JS.ACK.S",
    "$JS.ACK.S.C",
    "$JS.ACK.S.C.x.1.1.1.1",
    "$JS.API.INFO",
    "_INBOX.x",
  ])("%j is none", (reply) => {
    expect(parseAck(reply)).toBeUndefined();
  });

  test("near misses give whole numbers or nothing", () => {
    fc.assert(
      fc.property(nearMissText(["$JS.ACK.DM_main.dm_x.2.30.4.1700000000000000000.5"]), (reply) => {
        const { deliveryCount, streamSequence, pending } = parseAck(reply) ?? {
          deliveryCount: 0,
          streamSequence: 0,
          pending: 0,
        };
        expect([deliveryCount, streamSequence, pending].filter((n) => !Number.isSafeInteger(n))).toEqual([]);
      }),
      { numRuns: 1000 },
    );
  });

  test("W4.11 the bodies of §8; a delay is in nanoseconds on the wire", () => {
    expect(AckBody).toEqual({ Ack: "+ACK", Term: "+TERM", Progress: "+WPI" });
    expect(nextBody('{"batch":1}')).toBe('+NXT {"batch":1}');
    expect(nakBody(1500)).toBe('-NAK {"delay":1500000000}');
  });
});

describe("the error catalogue", () => {
  test("the codes of §13.3, and nothing that merely exists on every object", () => {
    expect(Object.values(ErrorCode)).toHaveLength(21);
    expect(Object.values(ErrorCode).every(isErrorCode)).toBe(true);
    expect(["constructor", "BadRequest", "", null, 7, {}].filter(isErrorCode)).toEqual([]);
  });

  test("a refusal says that nothing ran", () => {
    expect(badRequest("x", "y")).toMatchObject({
      code: "bad-request",
      next: "y",
      outcome: "not-executed",
      message: "x",
    });
    expect(badRequest("x").next).toBeUndefined();
  });

  test("whatever was thrown becomes an error of ours, with its cause", () => {
    const own = new CotalError("conflict", "x");
    expect(toCotalError(own)).toBe(own);
    const fault = new TypeError("boom");
    expect(toCotalError(fault)).toMatchObject({ code: "internal", message: "boom", cause: fault });
    expect(toCotalError("text")).toMatchObject({ code: "internal", message: "text" });
    for (const odd of [undefined, null, 7, { toString: null }, Object.create(null)]) {
      expect(toCotalError(odd).code).toBe("internal");
    }
  });
});
