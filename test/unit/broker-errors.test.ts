/** Errors of the broker as ours: by class and number, with an honest outcome. */
import {
  AuthorizationError,
  ClosedConnectionError,
  InvalidSubjectError,
  NoRespondersError,
  RequestError,
  TimeoutError,
  UserAuthenticationExpiredError,
} from "@nats-io/transport-node";
import { describe, expect, test } from "vitest";
import { parseAnswer } from "../../shared/broker/api.ts";
import { ApiCode, apiNumber, fromApi, fromNats, isCode, isUnknownOutcome } from "../../shared/broker/errors.ts";
import { BROKER_FLOOR, assertFloor } from "../../shared/broker/floor.ts";
import { CotalError } from "../../shared/protocol/base/errors.ts";
import { refusal } from "../support/refusal.ts";

describe("JetStream refusals", () => {
  test.each([
    [10071, 400, "conflict"],
    [10037, 404, "not-found"],
    [10059, 404, "not-found"],
    [10058, 400, "already-exists"],
    [10148, 400, "already-exists"],
    [10077, 503, "resource-exhausted"],
    [10023, 503, "resource-exhausted"],
    [10054, 400, "bad-request"],
    [10110, 500, "failed-precondition"],
    [10039, 503, "unavailable"],
    [10008, 503, "unavailable"],
  ])("number %i is %s %s, whatever it says, and ran nothing", (number, status, code) => {
    const error = fromApi({ code: status, err_code: number, description: "words that change" }, "try");
    expect(error).toMatchObject({ code, outcome: "not-executed" });
    expect(apiNumber(error)).toBe(number);
  });

  test.each([
    [400, "bad-request"],
    [404, "not-found"],
    [409, "conflict"],
    [413, "resource-exhausted"],
    [503, "unavailable"],
    [500, "internal"],
  ])("an unknown number goes by its status %i: %s", (status, code) => {
    expect(fromApi({ code: status, err_code: 1, description: "?" }, "try").code).toBe(code);
  });

  test("a lost compare-and-set says nothing of somebody else's sequence", () => {
    const error = fromApi(
      { code: 400, err_code: ApiCode.WrongLastSequence, description: "wrong last sequence: 4711" },
      "x",
    );
    expect(JSON.stringify([error.message, error.details, error.next])).not.toContain("4711");
  });

  test("an answer that is no JSON object is internal, and nobody knows what happened", () => {
    for (const text of ["", "no", "[]", "null", '"x"', "{"]) {
      const error = refusal(() => parseAnswer(new TextEncoder().encode(text), "ask"));
      expect(error).toMatchObject({ code: "internal", outcome: "unknown" });
    }
    expect(parseAnswer(new TextEncoder().encode('{"seq":1}'), "ask")).toEqual({ seq: 1 });
    const refused = refusal(() => parseAnswer(new TextEncoder().encode('{"error":{}}'), "ask"));
    expect(refused).toMatchObject({ code: "internal", outcome: "not-executed" });
  });
});

describe("errors of the client library and of sockets", () => {
  const socket = (code: string): Error => Object.assign(new Error("text"), { code });

  test.each([
    ["a timeout", new TimeoutError(), "deadline-exceeded", "unknown"],
    ["no responders", new NoRespondersError("x"), "unavailable", "not-executed"],
    ["a refused login", new AuthorizationError("x"), "unauthenticated", "not-executed"],
    ["an expired login", new UserAuthenticationExpiredError("x"), "unauthenticated", "not-executed"],
    ["a closed connection", new ClosedConnectionError(), "unavailable", "not-executed"],
    ["a request cut off", new RequestError("x"), "unavailable", "unknown"],
    ["an unlawful subject", new InvalidSubjectError("a b"), "bad-request", "not-executed"],
    ["a refused socket", socket("ECONNREFUSED"), "unavailable", "not-executed"],
    ["an unknown host", socket("ENOTFOUND"), "unavailable", "not-executed"],
    ["a certificate", socket("UNABLE_TO_VERIFY_LEAF_SIGNATURE"), "failed-precondition", "not-executed"],
    ["another code", socket("EWHATEVER"), "internal", "unknown"],
    ["any error", new Error("x"), "internal", "unknown"],
    ["no error at all", undefined, "internal", "unknown"],
  ])("%s", (_, thrown, code, outcome) => {
    expect(fromNats(thrown)).toMatchObject({ code, outcome });
  });

  test("ours passes through, and codes are asked by value", () => {
    const ours = new CotalError("conflict", "x", { outcome: "unknown" });
    expect(fromNats(ours)).toBe(ours);
    expect(isCode(ours, "conflict")).toBe(true);
    expect(isCode(ours, "not-found")).toBe(false);
    expect(isCode(new Error("conflict"), "conflict")).toBe(false);
    expect(isUnknownOutcome(ours)).toBe(true);
    expect(isUnknownOutcome(new Error("x"))).toBe(false);
    expect(apiNumber(ours)).toBeUndefined();
    expect(apiNumber(new Error("x"))).toBeUndefined();
  });
});

describe("PH.01 the version floor", () => {
  test("is 2.12", () => {
    expect(BROKER_FLOOR).toEqual([2, 12]);
  });

  test.each(["2.12.0", "2.12.0-RC.1", "2.14.0", "v2.13.1", "3.0.0", "2.100.0"])("PH.01: %s passes", (version) => {
    expect(() => assertFloor(version)).not.toThrow();
  });

  test.each(["2.11.99", "2.1.2", "1.99.0", "", "x", "2", "2.", "2.12x", "-2.12.0", "99999.1.0"])(
    "PH.01: %j is refused and says what to do",
    (version) => {
      const error = refusal(() => assertFloor(version));
      expect(error).toMatchObject({ code: "failed-precondition", outcome: "not-executed" });
      expect(error.next).toContain("upgrade");
    },
  );
});
