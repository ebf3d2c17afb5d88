/** The error a call throws, when it is one of ours. */
import { CotalError } from "../../shared/protocol/base/errors.ts";

/** Runs the call, which has to throw a `CotalError`, and hands that error back. */
export function refusal(call: () => unknown): CotalError {
  try {
    call();
  } catch (thrown) {
    if (thrown instanceof CotalError) return thrown;
    throw new Error("what was thrown is no CotalError", { cause: thrown });
  }
  throw new Error("nothing was thrown");
}

/** The same for a promise, which has to reject with a `CotalError`. */
export async function failure(pending: Promise<unknown>): Promise<CotalError> {
  try {
    await pending;
  } catch (thrown) {
    if (thrown instanceof CotalError) return thrown;
    throw new Error("what it rejected with is no CotalError", { cause: thrown });
  }
  throw new Error("it did not reject");
}
