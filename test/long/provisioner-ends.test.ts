/**
 * Ends that must not be everybody's: of the operator, of a credential's life, of one space's ledger.
 */
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type OpenSpace, openSpace } from "../../services/provisioner/open-space.ts";
import { ensureOperatorCredential, ensureSpaceTrust } from "../../services/trust/space-trust.ts";
import { ownUsers } from "../../shared/broker/own-credential.ts";
import { leaderLast } from "../../shared/broker/reads.ts";
import { createWriter } from "../../shared/broker/write.ts";
import { Life } from "../../shared/grants/matrix.ts";
import { kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { bucketStream, spaceNames } from "../../shared/protocol/base/names.ts";
import { SPACE_KEY } from "../../shared/protocol/chat/channel-config.ts";
import { CredentialRow, HeadRow, ledgerKey } from "../../shared/protocol/ledger/rows.ts";
import { failure } from "../support/refusal.ts";
import { type TestSpace, startSpace } from "../support/space.ts";

const nowSeconds = (): number => Math.floor(Date.now() / 1000);

async function row(space: TestSpace, bucket: "auth" | "records", key: string, of = "main"): Promise<unknown> {
  const place = spaceNames(of).bucket[bucket];
  const entry = await leaderLast(await space.store(of), bucketStream(place), kvKey(place, key));
  return entry === undefined ? undefined : JSON.parse(new TextDecoder().decode(entry.data));
}

/** The provisioner's own code in this process, over the files of the state. */
const openHere = (
  space: TestSpace,
  lifeSeconds?: number,
  onStatus: (connection: string) => void = () => undefined,
): Promise<OpenSpace> =>
  openSpace({
    space: "main",
    servers: [space.url],
    mode: "accounts",
    keysPattern: join(space.state, "spaces", "{space}", "provisioner"),
    users: ownUsers(),
    replicas: 1,
    concurrency: 16,
    perCaller: 16,
    onServed: () => undefined,
    onRecord: () => undefined,
    onRecordFault: () => undefined,
    onStatus,
    waiting: () => undefined,
    signal: new AbortController().signal,
    ...(lifeSeconds === undefined ? {} : { lifeSeconds }),
  });

/** A renewal of the operator's credential, as `cotal up` makes one in the second half of its life. */
const renewOperator = (space: TestSpace): Promise<void> =>
  ensureOperatorCredential(
    space.state,
    ensureSpaceTrust(space.state, "main"),
    "static",
    nowSeconds() + Life.Static * 0.6,
  );

describe("the operator", () => {
  let space: TestSpace;
  beforeAll(async () => {
    space = await startSpace();
  });
  afterAll(() => space.stop());

  test.each(["provisioner", "ledger"])("can't end the %s: the space would never be served again", async (actor) => {
    const { owner } = space.operator().view.principal;
    expect(await failure(space.call("deprovision", { owner, actor }))).toMatchObject({
      code: "failed-precondition",
      outcome: "not-executed",
    });
    expect(await row(space, "records", ledgerKey.head({ owner, actor }))).toMatchObject({ state: "active" });
  });

  test("can't mint under the owner that is the space itself", async () => {
    const { owner } = space.operator().view.principal;
    expect((await failure(space.mint({ owner, actor: "delivery" }))).code).toBe("bad-request");
  });

  test("a credential that is renewed beside a running provisioner gets its row without a restart", async () => {
    await space.provisioner.kill();
    const served = await openHere(space);
    try {
      const before = space.operator().view;
      await renewOperator(space);
      const after = space.operator().view;
      expect([after.uid, after.userKey === before.userKey]).toEqual([before.uid, false]);
      await served.renew();
      expect(CredentialRow.parse(await row(space, "auth", ledgerKey.cred(after.uid, after.userKey)))).toMatchObject({
        state: "active",
      });
    } finally {
      await served.close();
      await space.provisioner.restart();
    }
  });

  test("who ends the operator is told all of its keys, and the space is served again after a restart", async () => {
    const old = space.operator();
    const { owner } = old.view.principal;
    const begun = (await space.call("deprovision", { owner, actor: "operator" })) as {
      uid: string;
      opId: string;
      users: string[];
    };
    expect(begun.users).toHaveLength(2);
    expect(begun.users).toContain(old.view.userKey);
    // The operator has cut its own connection: the end is for its successor to complete.
    await space.trust("revoke", "--space", "main", "--server", space.url, "--users", begun.users.join(","));
    await space.provisioner.kill();
    await space.provisioner.restart();
    await space.trust("space", "--space", "main", "--server", space.url);
    const next = space.operator();
    expect(next.view.uid).not.toBe(old.view.uid);
    await space.call("space", {});
    const again = (await space.call("deprovision", { owner, actor: "operator" })) as { uid: string; opId: string };
    expect(again).toMatchObject({ uid: begun.uid, opId: begun.opId });
    const { uid, opId } = again;
    await space.call("deprovision-complete", { owner, actor: "operator", uid, opId });
    await space.provisioner.kill();
    await space.provisioner.restart();
    expect(HeadRow.parse(await row(space, "records", ledgerKey.head(old.view.principal)))).toMatchObject({
      state: "active",
      lifecycleUid: next.view.uid,
      currentCredentialId: next.view.userKey,
    });
    expect((await space.mint({ actor: "after" })).view.name).toBe("after");
  });
});

describe("the life of the provisioner's own credentials", () => {
  let space: TestSpace;
  beforeAll(async () => {
    space = await startSpace();
    await space.provisioner.kill();
  });
  afterAll(() => space.stop());

  const answers = async (): Promise<string> =>
    space.call("space", {}, { deadlineMs: 1000 }).then(
      () => "served",
      (error: unknown) => String((error as { code?: unknown }).code),
    );

  test("renewed in time, it serves over many of their lives, by the same process under the same epoch", async () => {
    const served = await openHere(space, 4);
    const ended: unknown[] = [];
    void served.broken.then((cause) => ended.push(cause));
    // One may fail beside a broker that stands still: the next one makes up for it. None outlives the connections.
    const renewals: Promise<void>[] = [];
    const timer = setInterval(() => void renewals.push(served.renew().catch(() => undefined)), 500);
    try {
      const until = performance.now() + 13_000;
      while (performance.now() < until) {
        await expect.poll(answers, { timeout: 5000 }).toBe("served");
        await new Promise((resolve) => setTimeout(resolve, 200));
      }
      // The store side too: a mint writes over both of its connections.
      await space.mint({ actor: "long_run", subscribe: ["general"] });
      expect(ended).toEqual([]);
      const { owner } = space.operator().view.principal;
      expect(await row(space, "records", ledgerKey.head({ owner, actor: "provisioner" }))).toMatchObject({
        processEpoch: served.epoch,
      });
    } finally {
      clearInterval(timer);
      await Promise.all(renewals);
      await served.stopIntake();
      await served.close();
    }
  }, 60_000);

  test("the connection of one clean-up is no part of the space's health: its end would stand there for ever", async () => {
    const told = new Set<string>();
    const served = await openHere(space, undefined, (connection) => void told.add(connection));
    try {
      const { owner } = (await space.mint({ actor: "short" })).view.principal;
      const begun = (await space.call("deprovision", { owner, actor: "short" })) as { uid: string; opId: string };
      const { uid, opId } = begun;
      await space.call("deprovision-complete", { owner, actor: "short", uid, opId });
    } finally {
      await served.stopIntake();
      await served.close();
    }
    expect([...told].toSorted()).toEqual(["desk", "front", "ledger", "store"]);
  });

  test("not renewed, as over a machine that slept: it ends with a cause, and the next run serves", async () => {
    const served = await openHere(space, 2);
    expect(await served.broken).toMatchObject({ code: "unauthenticated" });
    await served.stopIntake();
    await served.close();
    const next = await openHere(space);
    expect(await answers()).toBe("served");
    await next.stopIntake();
    await next.close();
  }, 60_000);
});

describe("rows that this version can't read", () => {
  const { channels } = spaceNames("main").bucket;
  /** Replaces a row of the registry; hands back a reader of its bytes. */
  const spoil = async (space: TestSpace, key: string, text: string): Promise<() => Promise<string>> => {
    const store = await space.store();
    const place = [bucketStream(channels), kvKey(channels, key)] as const;
    const found = await leaderLast(store, ...place);
    const writer = createWriter({ nc: store });
    const bytes = new TextEncoder().encode(text);
    await (found === undefined ? writer.create(...place, bytes) : writer.cas(...place, bytes, found.seq));
    return async () => new TextDecoder().decode((await leaderLast(store, ...place))?.data);
  };

  test("settings of a channel are not overwritten by a change of one field", async () => {
    const space = await startSpace();
    try {
      for (const text of ['{"deliveryClass":"of tomorrow","description":"kept"}', "no JSON"]) {
        const read = await spoil(space, "later", text);
        const change = { instructions: "x" };
        expect(await failure(space.call("channel-set", { channel: "later", change }))).toMatchObject({
          code: "failed-precondition",
          outcome: "not-executed",
        });
        expect(await read()).toBe(text);
      }
    } finally {
      await space.stop();
    }
  });

  test("settings of the space are not made anew at a restart", async () => {
    const space = await startSpace();
    try {
      const read = await spoil(space, SPACE_KEY, "no JSON");
      await space.provisioner.kill();
      void space.provisioner.restart().catch(() => undefined);
      await expect.poll(() => space.provisioner.log(), { timeout: 10_000 }).toContain("does not parse");
      expect(await read()).toBe("no JSON");
    } finally {
      await space.stop();
    }
  });
});

describe("a ledger row that does not parse", () => {
  test("keeps its own space from being served, by name, and no other", async () => {
    const space = await startSpace({ spaces: ["main", "lab"] });
    try {
      const { owner } = space.operator("main").view.principal;
      const { records } = spaceNames("main").bucket;
      const key = ledgerKey.head({ owner, actor: "provisioner" });
      const store = await space.store("main");
      const found = await leaderLast(store, bucketStream(records), kvKey(records, key));
      const bytes = new TextEncoder().encode('{"state":"active"}');
      await createWriter({ nc: store }).cas(bucketStream(records), kvKey(records, key), bytes, found?.seq ?? 0);
      await space.provisioner.kill();
      void space.provisioner.restart().catch(() => undefined);
      await expect
        .poll(
          () =>
            space.call("space", {}, { space: "lab", deadlineMs: 500 }).then(
              () => "served",
              () => "not yet",
            ),
          {
            timeout: 20_000,
          },
        )
        .toBe("served");
      await expect.poll(() => space.provisioner.log(), { timeout: 10_000 }).toContain(`the ledger row ${key}`);
      expect((await failure(space.call("space", {}, { deadlineMs: 1000 }))).code).toBe("unavailable");
    } finally {
      await space.stop();
    }
  }, 60_000);
});
