/** The stored-copy rule: any of the four native headers, in any case, with any value. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { Header, PROVENANCE_HEADERS, hasProvenance } from "../../shared/protocol/base/headers.ts";
import { readDelivery } from "../../shared/protocol/chat/message.ts";

const NATIVE = ["Nats-Stream", "Nats-Subject", "Nats-Sequence", "Nats-Time-Stamp"];

const mixedCase = (name: string) =>
  fc.array(fc.boolean(), { minLength: name.length, maxLength: name.length }).map((upper) =>
    name
      .split("")
      .map((letter, at) => (upper[at] === true ? letter.toUpperCase() : letter.toLowerCase()))
      .join(""),
  );

describe("W5.10 a message with a stored-message header is a stored copy", () => {
  test("the four names are those of §13.3", () => {
    expect([...PROVENANCE_HEADERS].toSorted()).toEqual(NATIVE.toSorted());
  });

  test("each of them, in any case, among any others", () => {
    const others = fc.array(fc.constantFrom("Nats-Msg-Id", "traceparent", "X", ""), { maxLength: 4 });
    fc.assert(
      fc.property(fc.constantFrom(...NATIVE).chain(mixedCase), others, others, (name, before, after) => {
        expect(hasProvenance([...before, name, ...after])).toBe(true);
      }),
    );
  });

  test("a header that publishers set is none", () => {
    const ours = Object.values(Header).filter((name) => !NATIVE.includes(name));
    expect(hasProvenance(ours)).toBe(false);
    expect(hasProvenance([])).toBe(false);
    expect(hasProvenance(["Nats-Streams", "Nats-Subject ", "X-Nats-Stream"])).toBe(false);
  });

  test("it is refused before anything is parsed", () => {
    const bytes = new Uint8Array([0xff]);
    expect(readDelivery("no subject", bytes, ["nats-STREAM"])).toMatchObject({ ok: false, reason: "stored-copy" });
    // The names of a message's headers come from an iterator.
    expect(readDelivery("no subject", bytes, new Map([["NATS-sequence", ""]]).keys())).toMatchObject({
      reason: "stored-copy",
    });
  });
});
