/** Ids of several instances of one daemon (decision 31). */
import { expect, test } from "vitest";
import { LIFECYCLE_UID } from "../../shared/protocol/base/grammar.ts";
import { instanceOfHost, isInstanceOf } from "../../shared/protocol/endpoint/instances.ts";

const UID = "deliverydeliverydeliveryde";
const OTHER = "provisionerprovisionerprov";

test("an instance is the same after each restart of its host, another on another host, and of its lifecycle alone", () => {
  const hosts = Array.from({ length: 20 }, (_, n) => `host-${n}`);
  const ids = hosts.map((host) => instanceOfHost(UID, host));
  expect(ids).toEqual(hosts.map((host) => instanceOfHost(UID, host)));
  expect(new Set(ids).size).toBe(hosts.length);
  for (const id of ids) expect(id).toMatch(LIFECYCLE_UID);
  expect(ids.filter((id) => !isInstanceOf(UID, id))).toEqual([]);
  expect(ids.filter((id) => isInstanceOf(OTHER, id))).toEqual([]);
});

test("a lifecycle is an instance itself, and what it did not yield is none", () => {
  expect(isInstanceOf(UID, UID)).toBe(true);
  expect(isInstanceOf(UID, OTHER)).toBe(false);
  expect(isInstanceOf(UID, "a".repeat(26))).toBe(false);
});
