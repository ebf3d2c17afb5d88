/** Header blocks that strangers wrote: nothing throws, and nobody poses as the broker. */
import { headers } from "@nats-io/transport-node";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { isMarker, parseHeaders, provenanceOf, withoutProvenance } from "../../shared/broker/stored-headers.ts";

const block = (text: string): Uint8Array => new TextEncoder().encode(text);

describe("headers of stored messages", () => {
  test("lawful lines are read, unlawful ones left out", () => {
    const parsed = parseHeaders(
      block("NATS/1.0\r\nA: 1\r\nB C: 2\r\n: 3\r\nA: 4\r\nno colon\r\nD:\r\nE: x\ry\r\n\r\n"),
    );
    expect(parsed?.keys()).toEqual(["A", "D"]);
    expect(parsed?.values("A")).toEqual(["1", "4"]);
    expect(parseHeaders(block("NATS/1.0\r\n\r\n"))).toBeUndefined();
  });

  test("no bytes make it throw", () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), fc.string(), (bytes, text) => {
        parseHeaders(bytes);
        parseHeaders(block(`NATS/1.0\r\n${text}\r\n\r\n`));
        return true;
      }),
    );
  });

  test("the broker's word is the last value; a sender's own stays visible", () => {
    const sent = headers();
    for (const forged of ["Nats-Stream", "Nats-Subject", "Nats-Sequence"]) sent.append(forged, "9");
    sent.append("Nats-Stream", "CHAT_s");
    sent.append("Nats-Subject", "cotal.s.chat.o.a.c");
    sent.append("Nats-Sequence", "7");
    sent.append("Nats-Time-Stamp", "2026-01-02T03:04:05.006007008Z");
    sent.append("Mine", "x");
    expect(provenanceOf(sent)).toEqual({
      stream: "CHAT_s",
      subject: "cotal.s.chat.o.a.c",
      seq: 7,
      timeMs: Date.UTC(2026, 0, 2, 3, 4, 5, 6),
    });
    const left = withoutProvenance(sent);
    expect(left?.keys().toSorted()).toEqual(["Mine", "Nats-Sequence", "Nats-Stream", "Nats-Subject"]);
    expect(left?.values("Nats-Subject")).toEqual(["9"]);
  });

  test("a status is no copy", () => {
    expect(provenanceOf(undefined)).toBeUndefined();
    expect(provenanceOf(headers(204, "EOB"))).toBeUndefined();
  });

  test("markers are a deleter's or the broker's", () => {
    const del = headers();
    del.set("KV-Operation", "DEL");
    const aged = headers();
    aged.set("Nats-Marker-Reason", "MaxAge");
    expect([undefined, headers(), del, aged].map(isMarker)).toEqual([false, false, true, true]);
  });
});
