/** Exit codes are a contract: each error code of the catalogue leads to exactly one. */
import { describe, expect, test } from "vitest";
import { Exit, UsageError, argument, exitOf, listOf, wholeNumber } from "../../cli/exit.ts";
import { CotalError, ErrorCode, badRequest } from "../../shared/protocol/base/errors.ts";
import { refusal } from "../support/refusal.ts";

describe("exit codes", () => {
  test("A.08: unreachable is 3, timed out is 4, every other refusal is 1", () => {
    const codes = Object.values(ErrorCode).map((code) => [code, exitOf(new CotalError(code, "x"))]);
    expect(Object.fromEntries(codes)).toEqual({
      "bad-request": 1,
      "unsupported-version": 1,
      "op-mismatch": 1,
      "class-mismatch": 1,
      "target-mismatch": 1,
      "sender-mismatch": 1,
      unauthenticated: 1,
      "permission-denied": 1,
      "not-found": 1,
      "already-exists": 1,
      conflict: 1,
      "contract-mismatch": 1,
      "contract-invalid": 1,
      "failed-precondition": 1,
      "deadline-exceeded": 4,
      cancelled: 1,
      expired: 1,
      unavailable: 3,
      unimplemented: 1,
      "resource-exhausted": 1,
      internal: 1,
    });
  });

  test("A.08: a wrong use is 2, and an argument that a parser refuses is a wrong use", () => {
    const error = refusal(() =>
      argument(() => {
        throw badRequest("no channel", "name one");
      }),
    );
    expect(error).toMatchObject({ message: "no channel", next: "name one" });
    expect(exitOf(error)).toBe(Exit.Usage);
  });

  test("an argument's reader that fails otherwise is not a wrong use", () => {
    const thrown = new CotalError(ErrorCode.NotFound, "gone");
    const error = refusal(() =>
      argument(() => {
        throw thrown;
      }),
    );
    expect(error).toBe(thrown);
  });

  test("what is no error of ours is a refusal, not a success", () => {
    expect(exitOf(new TypeError("boom"))).toBe(Exit.Refused);
    expect(exitOf(undefined)).toBe(Exit.Refused);
  });
});

describe("option values", () => {
  test.each(["", "-1", "1.5", "0x10", "1e3", "99999", "none", " 5"])("%j is no number from 1 to 100", (text) => {
    expect(refusal(() => wholeNumber("--n", 1, 100)(text))).toBeInstanceOf(UsageError);
  });

  test("both bounds are included", () => {
    expect([1, 100].map((n) => wholeNumber("--n", 1, 100)(String(n)))).toEqual([1, 100]);
  });

  test("a list loses blanks and empty entries", () => {
    expect(listOf(" a, b ,,c,")).toEqual(["a", "b", "c"]);
  });
});
