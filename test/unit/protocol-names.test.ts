/** Names of streams, buckets and durables, spelled by hand from §8 and supplement H. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  bucketStream,
  dlvDurable,
  dmDurable,
  leaseKey,
  objectStream,
  roleDurable,
  spaceNames,
  transferBucket,
} from "../../shared/protocol/base/names.ts";
import { lifecycleUids, principals, roles, spaces } from "../support/arbitraries.ts";
import { refusal } from "../support/refusal.ts";

const UID = "abcdefghijklmnopqrstuvwxyz";
const alice = { owner: "u_aaaaaaaaaaaaaaaaaaaaaaaaaa", actor: "alice" };

test("the streams and buckets of a space carry its name", () => {
  const { bucket, ...streams } = spaceNames("main");
  expect(streams).toEqual({
    chat: "CHAT_main",
    dm: "DM_main",
    task: "TASK_main",
    dlv: "DLV_main",
    epj: "EPJ_main",
    epf: "EPF_main",
    epe: "EPE_main",
    epr: "EPR_main",
    eptRequest: "EPT_REQ_main",
    ept: "EPT_main",
    epw: "EPW_main",
    epc: "EPC_main",
    wfj: "WFJ_main",
  });
  expect(Object.values(bucket).toSorted()).toEqual(
    [
      "accepted",
      "acl",
      "admission",
      "anycast",
      "auth",
      "channels",
      "issued",
      "leases",
      "members",
      "membership",
      "presence",
      "records",
      "sessions",
    ].map((name) => `cotal_${name}_main`),
  );
});

test("a bucket lies in a stream of its name, and a durable ends in the lifecycle UID", () => {
  expect(bucketStream("cotal_auth_main")).toBe("KV_cotal_auth_main");
  expect(objectStream("x")).toBe("OBJ_x");
  expect(transferBucket("main", UID)).toBe(`cotal_xfer_main_${UID}`);
  expect(dmDurable(alice, UID)).toBe(`dm_u_aaaaaaaaaaaaaaaaaaaaaaaaaa-alice-${UID}`);
  expect(dlvDurable(alice, UID)).toBe(`dlv_u_aaaaaaaaaaaaaaaaaaaaaaaaaa-alice-${UID}`);
  expect(roleDurable("reviewer")).toBe("svc_reviewer");
  expect(leaseKey("provisioner", "history")).toBe("lease.provisioner.history");
  expect(leaseKey("delivery", "fanout", 3)).toBe("lease.delivery.fanout.3");
});

test("W131.18 two lifecycles never share a durable, and neither do two principals", () => {
  const holder = fc.record({ p: principals, uid: lifecycleUids });
  fc.assert(
    fc.property(holder, holder, (one, two) => {
      const same = one.uid === two.uid && one.p.owner === two.p.owner && one.p.actor === two.p.actor;
      expect(dmDurable(one.p, one.uid) === dmDurable(two.p, two.uid)).toBe(same);
      expect(dlvDurable(one.p, one.uid) === dlvDurable(two.p, two.uid)).toBe(same);
      expect(dmDurable(one.p, one.uid)).not.toBe(dlvDurable(two.p, two.uid));
    }),
  );
});

test("every name is one that the broker takes", () => {
  fc.assert(
    fc.property(spaces, roles, principals, lifecycleUids, (space, role, p, uid) => {
      const { bucket, ...streams } = spaceNames(space);
      const names = [
        ...Object.values(streams),
        ...Object.values(bucket).map(bucketStream),
        roleDurable(role),
        dmDurable(p, uid),
        dlvDurable(p, uid),
        transferBucket(space, uid),
      ];
      expect(names.filter((name) => !/^[A-Za-z0-9_-]{1,255}$/.test(name))).toEqual([]);
      expect(new Set(names).size).toBe(names.length);
    }),
  );
});

describe("what is no token is refused", () => {
  test.each<[string, () => unknown]>([
    ["an empty space", () => spaceNames("")],
    ["a space with a dot", () => spaceNames("a.b")],
    ["a space that is a wildcard", () => spaceNames(">")],
    ["a space that is too long", () => spaceNames("s".repeat(33))],
    ["an instance id in capitals", () => transferBucket("main", UID.toUpperCase())],
    ["a short UID", () => dmDurable(alice, "x")],
    ["a UID with a dot", () => dlvDurable(alice, `${UID}.x`)],
    ["an actor with a dash", () => dmDurable({ owner: "local", actor: "a-b" }, UID)],
    ["a role that is a wildcard", () => roleDurable("*")],
    ["a duty with a dot", () => leaseKey("delivery", "a.b")],
    ["a negative lease", () => leaseKey("delivery", "fanout", -1)],
    ["half a lease", () => leaseKey("delivery", "fanout", 0.5)],
  ])("%s", (_what, build) => {
    expect(refusal(build).code).toBe("bad-request");
  });
});
