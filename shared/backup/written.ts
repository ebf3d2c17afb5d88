/** What was written of a stream, as a count and a digest, so that the stream can be compared when it is read again. */
import { createHash } from "node:crypto";
import type { Restored } from "../broker/recreate.ts";

export type Written = { readonly count: number; readonly sha256: string };

/** Hands messages through and counts them. */
export function digesting(from: AsyncIterable<Restored>) {
  const hash = createHash("sha256");
  let count = 0;
  const messages = async function* messages(): AsyncGenerator<Restored> {
    for await (const message of from) {
      const { seq, subject, headers = [], data } = message;
      hash.update(JSON.stringify([seq, subject, headers]));
      hash.update(data);
      count += 1;
      yield message;
    }
  };
  return {
    messages: messages(),
    /** Once all were taken. */
    written: (): Written => ({ count, sha256: hash.digest("hex") }),
  };
}
