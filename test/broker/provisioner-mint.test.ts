/** Static minting: what a lifecycle gets, what is refused, and what a crash leaves. */
import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Death } from "../../shared/broker/write.ts";
import { createWriter } from "../../shared/broker/write.ts";
import { streamState } from "../../shared/broker/ensure.ts";
import { leaderLast } from "../../shared/broker/reads.ts";
import { brokerLedgerStore } from "../../shared/ledger/broker-store.ts";
import { MAX_JWT_BYTES } from "../../shared/grants/gates.ts";
import { inboxPrefix, jsApi, kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { bucketStream, dlvDurable, dmDurable, roleDurable, spaceNames } from "../../shared/protocol/base/names.ts";
import { dotForm, drawLifecycleUid, drawNonce } from "../../shared/protocol/base/principals.ts";
import { spaceSubjects } from "../../shared/protocol/base/subjects.ts";
import { DEFAULT_LIMITS } from "../../shared/protocol/chat/space-settings.ts";
import type { MintArgs } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import { AclRow, CredentialRow, GateRow, HeadRow, UidRow, ledgerKey } from "../../shared/protocol/ledger/rows.ts";
import { readUserJwt } from "../../shared/trust/jwt.ts";
import { newKey } from "../../shared/trust/keys.ts";
import type { SpaceContext } from "../../services/provisioner/context.ts";
import { deprovision, deprovisionComplete } from "../../services/provisioner/deprovision.ts";
import { readKeys } from "../../services/provisioner/keys.ts";
import { mint } from "../../services/provisioner/mint.ts";
import { untilItEnds } from "../support/crash.ts";
import { failure } from "../support/refusal.ts";
import { type TestSpace, startSpace } from "../support/space.ts";
import { unpaced } from "../support/unpaced.ts";
import { join } from "node:path";

let space: TestSpace;
beforeAll(async () => {
  space = await startSpace();
});
afterAll(() => space.stop());

const names = spaceNames("main");

async function consumer(stream: string, name: string): Promise<Record<string, unknown> | undefined> {
  const store = await space.store();
  const answer = (await store.request(jsApi.consumerInfo(stream, name))).json<{ config?: Record<string, unknown> }>();
  return answer.config;
}

async function row(bucket: "auth" | "records" | "acl", key: string): Promise<unknown> {
  const place = names.bucket[bucket];
  const entry = await leaderLast(await space.store(), bucketStream(place), kvKey(place, key));
  return entry === undefined || entry.data.length === 0 ? undefined : JSON.parse(new TextDecoder().decode(entry.data));
}

const args = (over: Partial<MintArgs> = {}): MintArgs => ({
  profile: "agent",
  owner: "acme",
  actor: "somebody",
  name: "somebody",
  userKey: newKey("user").publicKey,
  ...over,
});

describe("a mint", () => {
  test("W8.05, W8.23, W131.17: the inbox begins after what is stored, and names carry the lifecycle", async () => {
    const sender = await space.mint({ actor: "sender" });
    const nc = await space.connect(sender);
    const target = { owner: sender.view.principal.owner, actor: "later" };
    const subject = spaceSubjects("main").inst(target, sender.view.principal);
    const stored = (await nc.request(subject, "{}")).json<{ seq: number }>();
    const { view } = await space.mint({ actor: "later" });
    expect(await consumer(names.dm, dmDurable(view.principal, view.uid))).toMatchObject({
      deliver_policy: "by_start_sequence",
      opt_start_seq: stored.seq + 1,
      filter_subject: spaceSubjects("main").instTo(view.principal),
      ack_policy: "explicit",
      ack_wait: 60e9,
      max_deliver: -1,
      max_batch: 1,
      max_expires: 30e9,
    });
    expect(await consumer(names.dlv, dlvDurable(view.principal, view.uid))).toMatchObject({ ack_wait: 60e9 });
  });

  test("W8.06: two holders of a role share one durable", async () => {
    await space.mint({ actor: "first_reviewer", role: "reviewer" });
    await space.mint({ actor: "second_reviewer", role: "reviewer" });
    expect(await consumer(names.task, roleDurable("reviewer"))).toMatchObject({
      ack_policy: "explicit",
      ack_wait: 60e9,
      filter_subject: spaceSubjects("main").svcTo("reviewer"),
    });
  });

  test("W8.23, H8: every row of the ledger stands before the credential leaves", async () => {
    const { view } = await space.mint({ actor: "ledgered", subscribe: ["general", "team.>"] });
    expect(UidRow.parse(await row("records", ledgerKey.uid(view.uid)))).toMatchObject({ actor: "ledgered" });
    expect(GateRow.parse(await row("auth", ledgerKey.gate(view.uid)))).toEqual({ state: "open", generation: 1 });
    expect(HeadRow.parse(await row("records", ledgerKey.head(view.principal)))).toMatchObject({
      state: "active",
      lifecycleUid: view.uid,
      currentCredentialId: view.userKey,
    });
    expect(CredentialRow.parse(await row("auth", ledgerKey.cred(view.uid, view.userKey)))).toMatchObject({
      state: "active",
      holderPrincipal: dotForm(view.principal),
    });
    expect(AclRow.parse(await row("acl", ledgerKey.acl(view.principal, view.uid)))).toMatchObject({
      allowSubscribe: ["general", "team.>"],
      credential: view.userKey,
    });
  });

  test("H8: the operator's own credential and the daemons' are in the ledger too", async () => {
    for (const actor of ["operator", "provisioner", "ledger"]) {
      const { owner } = space.operator().view.principal;
      expect(HeadRow.parse(await row("records", ledgerKey.head({ owner, actor })))).toMatchObject({ state: "active" });
    }
  });

  test("H48: a label always comes to the same owner, and a raw token of another shape is refused", async () => {
    const one = await space.mint({ actor: "one", owner: "acme" });
    const two = await space.mint({ actor: "two", owner: "acme" });
    expect(two.view.principal.owner).toBe(one.view.principal.owner);
    expect((await failure(space.mint({ actor: "three", owner: "u_short" }))).code).toBe("bad-request");
    expect((await failure(space.mint({ actor: "three", owner: "local" }))).code).toBe("bad-request");
  });

  test("W9.04: lists are taken by single-entry containment; none is given that was not asked for", async () => {
    const call = (over: Partial<MintArgs>) => space.call("mint", args(over));
    const refused = await failure(call({ actor: "w1", subscribe: ["perm.>"], allowSubscribe: ["perm.*"] }));
    expect(refused.code).toBe("bad-request");
    const both = await failure(call({ actor: "w2", subscribe: ["a", "b"], allowSubscribe: ["a"] }));
    expect(both.message).toContain("b");
    const taken = (await call({ actor: "w3", subscribe: ["team.one"], allowSubscribe: ["team.>"] })) as { jwt: string };
    expect(readUserJwt(taken.jwt)).toMatchObject({ allowSubscribe: ["team.>"], allowPublish: [] });
    const same = (await call({ actor: "w4", subscribe: ["a", "b.*"] })) as { jwt: string };
    expect(readUserJwt(same.jwt).allowSubscribe).toEqual(["a", "b.*"]);
  });

  test("W6.11: a name of 129 characters is refused, one of 128 is taken", async () => {
    expect((await failure(space.mint({ actor: "long", name: "n".repeat(129) }))).code).toBe("bad-request");
    expect((await space.mint({ actor: "long", name: "n".repeat(128) })).view.name).toBe("n".repeat(128));
  });

  test("PD.12: past 16 KiB the mint is refused with the longest entry named, and no row was written", async () => {
    const channels = Array.from({ length: 400 }, (_, index) => `area-${index}.some-longer-channel-name`);
    const refused = await failure(space.mint({ actor: "big", subscribe: channels }));
    expect(refused.code).toBe("resource-exhausted");
    expect(refused.message).toContain("some-longer-channel-name");
    const { owner } = (await space.mint({ actor: "other" })).view.principal;
    expect(await row("records", ledgerKey.head({ owner, actor: "big" }))).toBeUndefined();
  });

  test("PD.12: the largest credential that is minted connects", async () => {
    const channels = Array.from({ length: 130 }, (_, index) => `area-${index}.some-longer-channel-name`);
    const largest = await space.mint({ actor: "largest", subscribe: channels });
    expect(largest.jwt.length).toBeGreaterThan(MAX_JWT_BYTES * 0.7);
    await (await space.connect(largest)).flush();
  });

  test("H67: limits stand in the credential, and the broker tells them", async () => {
    const nc = await space.connect(await space.mint({ actor: "limited" }));
    // The broker's first INFO says its own; the one after the login says the credential's.
    await expect.poll(() => nc.info?.max_payload, { timeout: 25_000 }).toBe(DEFAULT_LIMITS.agent.payload);
  });

  test("an active alias is not minted twice, unless it is the same request again", async () => {
    const request = args({ actor: "twice" });
    const first = (await space.call("mint", request)) as { uid: string };
    expect(((await space.call("mint", request)) as { uid: string }).uid).toBe(first.uid);
    expect(await failure(space.call("mint", args({ actor: "twice" })))).toMatchObject({
      code: "already-exists",
      outcome: "not-executed",
    });
    expect((await failure(space.call("mint", { ...request, name: "another" }))).code).toBe("conflict");
  });

  test("a renewal asks with the credential's own lists, and is the same request", async () => {
    const request = args({
      actor: "renewed",
      allowSubscribe: ["z", "team.a", "team.>", "z"],
      allowPublish: ["b", "a.b", "a.>"],
    });
    const first = (await space.call("mint", request)) as { uid: string; jwt: string };
    const { allowSubscribe, allowPublish } = readUserJwt(first.jwt);
    const again = { ...request, owner: readUserJwt(first.jwt).principal.owner, allowSubscribe, allowPublish };
    expect(((await space.call("mint", again)) as { uid: string }).uid).toBe(first.uid);
  });

  test("W9.07, W9.08, PF.02: other profiles take no channels, and live as long as their use asks", async () => {
    expect((await failure(space.mint({ actor: "o1", profile: "observer", publish: ["x"] }))).code).toBe("bad-request");
    const probe = await space.mint({ actor: "p1", profile: "probe" });
    // Read after the mint, which may have begun in the second before.
    const now = Date.now() / 1000;
    expect((probe.view.expires ?? 0) - now).toBeLessThanOrEqual(300);
    const observer = await space.mint({ actor: "o2", profile: "observer" });
    expect(observer.view.allowSubscribe).toEqual([">"]);
  });
});

describe("a crash at any write", () => {
  test("minting converges on one lifecycle, and the credential connects", async () => {
    const request = args({ actor: "crashed", subscribe: ["general"], role: "crasher" });
    const { result, deaths } = await untilItEnds((death) =>
      withContext(death, (context) => mint(context, "test", request)),
    );
    // A run that finds its gate and head made asks for them no more: `auth-plane.test.ts` dies at each of all writes.
    expect(deaths).toBeGreaterThanOrEqual(16);
    const view = readUserJwt(result.jwt);
    const uids = (await rowsOf(names.bucket.records, "uid.*")).filter((one) => UidRow.parse(one).actor === "crashed");
    expect(uids).toHaveLength(1);
    expect(GateRow.parse(await row("auth", ledgerKey.gate(view.uid))).state).toBe("open");
    expect(await consumer(names.dm, dmDurable(view.principal, view.uid))).toBeDefined();
  });

  test("W8.08, W131.18: ending a lifecycle converges, and leaves nothing but its ledger", async () => {
    const gone = await space.mint({ actor: "ending", subscribe: ["general"] });
    const other = await space.mint({ actor: "ending_not", subscribe: ["general"] });
    const who = { owner: gone.view.principal.owner, actor: "ending" };
    const began = await untilItEnds((death) => withContext(death, (context) => deprovision(context, who)));
    expect(began.result).toMatchObject({ uid: gone.view.uid, users: [gone.view.userKey] });
    const { opId, uid } = began.result;
    await untilItEnds((death) => withContext(death, (context) => deprovisionComplete(context, { ...who, uid, opId })));
    expect(HeadRow.parse(await row("records", ledgerKey.head(who)))).toMatchObject({ state: "retired" });
    expect(GateRow.parse(await row("auth", ledgerKey.gate(uid))).state).toBe("retired");
    expect(await consumer(names.dm, dmDurable(gone.view.principal, uid))).toBeUndefined();
    expect(await consumer(names.dlv, dlvDurable(gone.view.principal, uid))).toBeUndefined();
    expect(await row("acl", ledgerKey.acl(gone.view.principal, uid))).toBeUndefined();
    expect(await consumer(names.dm, dmDurable(other.view.principal, other.view.uid))).toBeDefined();
  });

  test("W8.08: a successor sees neither its predecessor's backlog nor the gap's", async () => {
    const sender = await space.mint({ actor: "writer" });
    const nc = await space.connect(sender);
    const first = await space.mint({ actor: "phoenix" });
    const subject = spaceSubjects("main").inst(first.view.principal, sender.view.principal);
    await nc.request(subject, "{}");
    const { owner } = first.view.principal;
    const { uid, opId } = (await space.call("deprovision", { owner, actor: "phoenix" })) as {
      uid: string;
      opId: string;
    };
    await space.call("deprovision-complete", { owner, actor: "phoenix", uid, opId });
    await nc.request(subject, "{}");
    const second = await space.mint({ actor: "phoenix" });
    expect(second.view.uid).not.toBe(first.view.uid);
    const info = await (
      await space.store()
    ).request(jsApi.consumerInfo(names.dm, dmDurable(second.view.principal, second.view.uid)));
    expect(info.json<{ num_pending: number }>().num_pending).toBe(0);
  });

  test("two mints of one alias at once: one wins, the other's gate ends retired", async () => {
    const requests = [args({ actor: "raced" }), args({ actor: "raced" })];
    const ended = await Promise.allSettled(requests.map((one) => space.call("mint", one)));
    expect(ended.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
    const uids = (await rowsOf(names.bucket.records, "uid.*")).map((one) => UidRow.parse(one));
    const gates = await Promise.all(
      uids
        .filter(({ actor }) => actor === "raced")
        .map(({ lifecycleUid }) => row("auth", ledgerKey.gate(lifecycleUid))),
    );
    expect(gates.map((gate) => GateRow.parse(gate).state).filter((state) => state === "open")).toHaveLength(1);
    expect(gates.map((gate) => GateRow.parse(gate).state).filter((state) => state === "frozen")).toHaveLength(0);
  });

  test("kill -9 of the provisioner in the middle of mints: retried requests converge", async () => {
    const requests = Array.from({ length: 12 }, (_, index) => args({ actor: `storm_${index}`, role: "stormy" }));
    const first = requests.map((one) => space.call("mint", one, { deadlineMs: 3000 }).catch(() => undefined));
    await new Promise((resolve) => setTimeout(resolve, 15));
    await space.provisioner.kill("SIGKILL");
    await space.provisioner.restart();
    await Promise.all(first);
    const minted = await Promise.all(requests.map((one) => space.call("mint", one)));
    expect(new Set(minted.map((one) => (one as { uid: string }).uid)).size).toBe(requests.length);
  });
});

async function rowsOf(bucket: string, filter: string): Promise<unknown[]> {
  const { allRows } = await import("../../shared/broker/reads.ts");
  const rows: unknown[] = [];
  for await (const one of allRows(await space.store(), bucket, { filter, limit: 500 })) {
    if (one.kind === "value") rows.push(JSON.parse(new TextDecoder().decode(one.data)));
  }
  return rows;
}

/** The provisioner's own code in this process, with a writer that dies where it is told. */
async function withContext<T>(death: Death, run: (context: SpaceContext) => Promise<T>): Promise<T> {
  const store = await space.store();
  const writer = createWriter({ nc: store, die: death });
  const keys = readKeys(join(space.state, "spaces", "{space}", "provisioner"), "main");
  const { settings } = (await space.call("space", {})) as { settings: SpaceContext["settings"] };
  await streamState(store, names.chat);
  return run({
    space: "main",
    names,
    subjects: spaceSubjects("main"),
    store,
    writer,
    settings,
    purger: undefined,
    daemon: (name) => ({ owner: "sys", actor: name }),
    serving: undefined,
    registrations: unpaced,
    authority: {
      keys,
      ledger: brokerLedgerStore(store, writer, "main"),
      gate: () => Promise.resolve(undefined),
      cleaner: async () => {
        const uid = drawLifecycleUid(randomBytes);
        const opened = await space.open(space.operator());
        return {
          ...opened,
          nc: store,
          inboxPrefix: inboxPrefix(uid, drawNonce(randomBytes)),
          drain: () => Promise.resolve(),
        };
      },
    },
    replicas: 1,
    now: Date.now,
    random: randomBytes,
  });
}
