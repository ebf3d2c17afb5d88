/**
 * A space that an earlier version made comes up: what its ledger's store lacks is turned on in place, with
 * every row that is in it, and what no earlier version explains is refused as ever.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { describe, expect, test } from "vitest";
import { streamState, verifyStreams } from "../../shared/broker/ensure.ts";
import { rowPage } from "../../shared/broker/reads.ts";
import { spaceStreams } from "../../shared/broker/resources.ts";
import { isUpgrade } from "../../shared/broker/upgrade.ts";
import { jsApi, kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { bucketStream, spaceNames } from "../../shared/protocol/base/names.ts";
import { ActorListAnswer } from "../../shared/protocol/endpoint/auth-shapes.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { startAuthService } from "../support/auth-service.ts";
import { startSpace } from "../support/space.ts";

const { bucket } = spaceNames("main");
const LEDGER = bucketStream(bucket.auth);
const text = (data: Uint8Array): string => new TextDecoder().decode(data);

/** Key and value of every row. */
async function rowsOf(nc: NatsConnection): Promise<[string, string][]> {
  const { rows } = await rowPage(nc, bucket.auth, { limit: 1000, via: "leader" });
  return rows.map(({ key, data }) => [key, text(data)]);
}

/** The ledger's store as an earlier version made it, with the rows that it has. */
async function asAnEarlierVersion(nc: NatsConnection, over: object = {}): Promise<[string, string][]> {
  const rows = await rowsOf(nc);
  const { config } = await streamState(nc, LEDGER);
  await nc.request(jsApi.streamDelete(LEDGER));
  const before = { ...config, allow_msg_ttl: false, deny_delete: false, ...over };
  const made = await nc.request(jsApi.streamCreate(LEDGER), JSON.stringify(before));
  expect(made.json()).not.toHaveProperty("error");
  for (const [key, value] of rows) {
    expect((await nc.request(kvKey(bucket.auth, key), value)).json()).toHaveProperty("seq");
  }
  return rows;
}

const drift = (nc: NatsConnection) => verifyStreams(nc, spaceStreams("main", { replicas: 1 }));

// Each has a space of its own, and mostly waits for its processes.
describe.concurrent("a space of an earlier version", () => {
  test("with credential files: the provisioner brings it up to date, and who was minted stays", async () => {
    const space = await startSpace();
    const before = await space.mint({ actor: "alice", subscribe: ["general"] });
    const store = await space.store();
    await space.provisioner.kill("SIGTERM");
    const rows = await asAnEarlierVersion(store);
    expect((await drift(store)).map(({ field }) => field).toSorted()).toEqual(["allow_msg_ttl", "deny_delete"]);
    await space.provisioner.restart();
    expect(await drift(store)).toEqual([]);
    expect(await rowsOf(store)).toEqual(expect.arrayContaining(rows.filter(([key]) => !key.startsWith("gate."))));
    expect(await space.call("check", {})).toMatchObject({ findings: [] });
    await space.connect(before);
    expect(space.provisioner.log()).toContain("a store of an earlier version was brought up to date");
    expect(space.provisioner.log()).not.toContain("another shape");
    await space.stop();
  }, 60_000);

  test("where people sign in: the auth service does, and who was enrolled comes in", async () => {
    const space = await startSpace({ auth: "user" });
    const auth = await startAuthService(space);
    await space.provisioner.ready();
    const { lifecycleUid } = await auth.signIn("alice");
    const store = await space.store();
    await auth.kill("SIGTERM");
    await space.provisioner.kill("SIGTERM");
    await asAnEarlierVersion(store);
    await space.provisioner.restart();
    const again = await startAuthService(space);
    await space.provisioner.ready();
    expect(await drift(store)).toEqual([]);
    expect(await again.signIn("alice")).toMatchObject({ lifecycleUid });
    const list = ActorListAnswer.parse(await space.call("actor-list", {}, { endpoint: EndpointName.Auth }));
    expect(list.actors.map(({ actor }) => actor)).toEqual(["alice"]);
    expect(space.provisioner.log()).not.toContain("another shape");
    await again.stop();
    await space.stop();
  }, 60_000);

  test("W131L.13 PH.02: beside a difference that no earlier version explains nothing is turned on", async () => {
    const space = await startSpace({ auth: "user" });
    const store = await space.store();
    await asAnEarlierVersion(store, { allow_direct: true });
    const started = startAuthService(space, { fails: "allow_direct" });
    await expect(started).rejects.toThrow("allow_direct");
    expect((await streamState(store, LEDGER)).config["allow_msg_ttl"]).not.toBe(true);
    await space.stop();
  }, 30_000);

  test("only from off to on, only of the ledger, and nothing beside these two fields", () => {
    const off = { stream: LEDGER, field: "deny_delete", expected: true, found: false };
    expect(isUpgrade("main", off)).toBe(true);
    expect(isUpgrade("main", { ...off, found: undefined })).toBe(true);
    const others = [
      { ...off, expected: false, found: true },
      { ...off, field: "allow_direct" },
      { ...off, field: "max_age", expected: 0, found: 5 },
      { ...off, stream: bucketStream(bucket.records) },
      { ...off, stream: bucketStream(spaceNames("lab").bucket.auth) },
    ];
    expect(others.filter((one) => isUpgrade("main", one))).toEqual([]);
  });
});
