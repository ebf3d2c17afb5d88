/** Chat sessions over a ledger in memory: what opens one, what a bearer rests on, and how one ends. */
import { describe, expect, test } from "vitest";
import type { Authority, ActorAdministration, BearerAct } from "../../services/auth/plane/authority-type.ts";
import { createAuthority } from "../../services/auth/plane/authority.ts";
import type { ChatSigner } from "../../services/auth/plane/chat/bearer.ts";
import { type Chat, createChat } from "../../services/auth/plane/chat/chat.ts";
import type { OpenChat } from "../../services/auth/plane/chat/open.ts";
import type { ChatParts } from "../../services/auth/plane/chat/parts.ts";
import { createChatSweep } from "../../services/auth/plane/chat/sweep.ts";
import { rootCredentialId } from "../../shared/ledger/root.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import { canonicalDigest } from "../../shared/protocol/base/canonical.ts";
import { CotalError, ErrorCode } from "../../shared/protocol/base/errors.ts";
import { CHAT_ACTOR, LIFECYCLE_UID } from "../../shared/protocol/base/grammar.ts";
import { ActorRow } from "../../shared/protocol/ledger/actor-rows.ts";
import { ChatHolderRow, ChatOwnerRow, ChatSessionRow } from "../../shared/protocol/ledger/chat-rows.ts";
import { bearerSigner, newBearerJwk, verifyBearer } from "../../shared/trust/bearer.ts";
import { hashOf, memoryChatParts } from "../support/chat-parts.ts";
import { Died, type MemoryLedger, memoryLedger } from "../support/memory-ledger.ts";
import { NOW_MS, OWNER, SIGN_IN, STRANGER } from "../support/plane-parts.ts";
import { failure } from "../support/refusal.ts";

const SECONDS = NOW_MS / 1000;
const HOUR = 3600;
const cli = { owner: OWNER, actor: "cli" };
const HASH = hashOf("a secret of the holder");
const key = (hash = HASH) => `chatholder.${OWNER}.${hash}`;

const signer = bearerSigner(newBearerJwk());
const scope = { issuer: "cotal:main:test", audience: "cotal:main" };

type Rig = {
  readonly ledger: MemoryLedger;
  readonly clock: { now: number };
  readonly authority: Authority & ActorAdministration;
  readonly chat: Chat;
  readonly parts: ReturnType<typeof memoryChatParts>;
  /** Another process on the same ledger. */
  readonly process: (store: LedgerStore, over?: Partial<ChatParts>) => Chat;
  readonly removed: string[];
  /** How many connections there are of a chat session; -1 if that can't be told. */
  readonly live: { count: number };
};

const LISTS = { allowSubscribe: ["team.>", "general"], allowPublish: ["team.>"] };

/** A space in which the person has signed in as `cli`. */
async function rigOf(over: Partial<ChatParts> = {}): Promise<Rig> {
  const ledger = memoryLedger();
  const clock = { now: NOW_MS };
  const live = { count: 0 };
  const connectionsOf: ChatParts["connectionsOf"] = () =>
    Promise.resolve(
      live.count < 0
        ? { kind: "unknown", code: ErrorCode.Unavailable, why: "a server is away", next: "ask again" }
        : live.count === 0
          ? { kind: "none" }
          : { kind: "some", count: live.count },
    );
  const common = {
    now: () => clock.now,
    connectionsOf,
    defaults: { ...LISTS, capabilities: ["spawn"], role: "helper" },
    ...over,
  };
  const parts = memoryChatParts(ledger.store(), common);
  const authority = createAuthority(parts);
  await authority.enrol(cli, SIGN_IN);
  const process = (store: LedgerStore, more: Partial<ChatParts> = {}): Chat => {
    const own = memoryChatParts(store, { ...common, removeRemains: parts.removeRemains, ...more });
    return createChat(own, signing(createAuthority(own)));
  };
  return { ledger, clock, authority, parts, process, removed: parts.removed, live, chat: process(ledger.store()) };
}

const signing = (authority: Pick<Authority, "check">): ChatSigner => ({
  authority,
  bearer: { ...scope, signer },
});

const open = (over: Partial<OpenChat> = {}): OpenChat => ({ owner: OWNER, holderHash: HASH, ...over });
const holderRow = ({ ledger }: Rig, hash = HASH): ChatHolderRow => ChatHolderRow.parse(ledger.row("auth", key(hash)));
const sessionRow = (rig: Rig, hash = HASH) =>
  ChatSessionRow.parse(rig.ledger.row("auth", `chatsession.${holderRow(rig, hash).lifecycleUid}`));
const slotsOf = ({ ledger }: Rig): string[] =>
  (ChatOwnerRow.safeParse(ledger.row("auth", `chatowner.${OWNER}`)).data?.slots ?? []).map(
    ({ holderHash }) => holderHash,
  );
const gateOf = ({ ledger }: Rig, uid: string): unknown =>
  Reflect.get(Object(ledger.row("auth", `gate.${uid}`)), "state");
const headOf = ({ ledger }: Rig, actor: string): unknown =>
  Reflect.get(Object(ledger.row("records", `lifecycle.${OWNER}.${actor}`)), "state");
const actOf = (rig: Rig, hash = HASH): BearerAct => {
  const { owner, actor, lifecycleUid } = holderRow(rig, hash);
  return { owner, actor, lifecycleUid, credentialId: rootCredentialId(lifecycleUid, 1) };
};
const put = ({ ledger }: Rig, bucket: "auth" | "records", at: string, part: object): void =>
  ledger.put(bucket, at, { ...Object(ledger.row(bucket, at)), ...part });

const proof = SECONDS + HOUR;
const bearerOf = async (rig: Rig, proofExpires = proof) =>
  rig.chat.bearer(await rig.chat.holder({ owner: OWNER, holderHash: HASH }), proofExpires);

/** Everything of a session is at its end, and its slot is free. */
function expectSettled(rig: Rig, hash = HASH): void {
  const { actor, lifecycleUid, ...row } = holderRow(rig, hash);
  expect(row).toMatchObject({ state: "retired", end: "settled" });
  expect([gateOf(rig, lifecycleUid), headOf(rig, actor)]).toEqual(["retired", "retired"]);
  expect(slotsOf(rig)).not.toContain(hash);
}

describe("W10.25 opening", () => {
  test("W10.25 W10.27 actor and UID are drawn, the person's own grant is pinned, and every row is durable", async () => {
    const rig = await rigOf();
    const before = rig.ledger.writes.length;
    const opened = await rig.chat.open(open({ lifeSeconds: HOUR, allowSubscribe: ["team.a"], allowPublish: [] }));
    expect(opened.actor).toMatch(CHAT_ACTOR);
    expect(opened.lifecycleUid).toMatch(LIFECYCLE_UID);
    expect(opened).toMatchObject({
      state: "active",
      owner: OWNER,
      holderHash: HASH,
      allowSubscribe: ["team.a"],
      allowPublish: [],
      name: "Somebody (chat)",
      exp: SECONDS + HOUR,
    });
    const grant = ActorRow.parse(rig.ledger.row("auth", `actor.${OWNER}.cli`));
    const head = await rig.ledger.store().read("records", `lifecycle.${OWNER}.cli`);
    expect(opened.parent).toEqual({
      actor: "cli",
      lifecycleUid: grant.lifecycleUid,
      headRevision: head.kind === "value" ? head.revision : 0,
      rowDigest: canonicalDigest(grant),
    });
    const { actor, lifecycleUid: uid } = opened;
    expect(rig.ledger.row("auth", `chatsession.${uid}`)).toMatchObject({ ...opened, at: NOW_MS });
    expect(holderRow(rig)).toMatchObject({ state: "active", actor, lifecycleUid: uid, exp: opened.exp });
    expect(slotsOf(rig)).toEqual([HASH]);
    expect(rig.ledger.row("auth", `cred.${uid}.${rootCredentialId(uid, 1)}`)).toMatchObject({
      state: "active",
      exp: opened.exp,
    });
    expect(gateOf(rig, uid)).toBe("open");
    const families = rig.ledger.writes.slice(before).map((write) => write.split(/[.]/, 1)[0]);
    expect(families).toEqual([
      "auth/chatholder",
      "auth/chatowner",
      "auth/chatholder",
      "auth/chatsession",
      "auth/stage",
      "records/uid",
      "auth/gate",
      "records/lifecycle",
      `acl/${OWNER}`,
      "auth/gate",
      "auth/cred",
      "auth/gate",
      "records/lifecycle",
      "auth/chatsession",
      "auth/chatholder",
    ]);
  });

  test("W10.25 what is left out is the parent's, and 8 hours; never its role or its capabilities", async () => {
    const rig = await rigOf();
    const opened = await rig.chat.open(open());
    expect(opened).toMatchObject({
      allowSubscribe: ["general", "team.>"],
      allowPublish: ["team.>"],
      exp: SECONDS + 8 * HOUR,
    });
    const checked = await rig.authority.check(actOf(rig));
    expect(checked).toMatchObject({ ok: true, actor: { capabilities: [], kind: "interactive" } });
    expect(Object.keys("actor" in checked ? checked.actor : {})).not.toContain("role");
  });

  test.each<[string, Partial<OpenChat>, ErrorCode]>([
    ["a wider read list", { allowSubscribe: ["team.>", "other"] }, ErrorCode.PermissionDenied],
    ["everything to read", { allowSubscribe: [">"] }, ErrorCode.PermissionDenied],
    ["a wider post list", { allowPublish: ["general"] }, ErrorCode.PermissionDenied],
    ["nine hours", { lifeSeconds: 9 * HOUR }, ErrorCode.BadRequest],
    ["a second more than eight hours", { lifeSeconds: 8 * HOUR + 1 }, ErrorCode.BadRequest],
    ["a name of two lines", { name: "a\nb" }, ErrorCode.BadRequest],
  ])("W10.25 %s is refused, and nothing is written", async (_, over, code) => {
    const rig = await rigOf();
    const before = rig.ledger.writes.length;
    expect(await failure(rig.chat.open(open(over)))).toMatchObject({ code, outcome: "not-executed" });
    expect(rig.ledger.writes.length).toBe(before);
  });

  test.each<[string, (rig: Rig) => unknown]>([
    ["was never granted", (rig) => rig.ledger.put("auth", `actor.${OWNER}.cli`, undefined)],
    ["is revoked", (rig) => rig.authority.revoke(cli)],
    [
      "has a lifecycle that is ending",
      (rig) => put(rig, "records", `lifecycle.${OWNER}.cli`, { currentCredentialId: undefined }),
    ],
    ["is a managed agent's", (rig) => put(rig, "auth", `actor.${OWNER}.cli`, { kind: "managed" })],
    [
      "is of another lifecycle than its head",
      (rig) => put(rig, "auth", `actor.${OWNER}.cli`, { lifecycleUid: "z".repeat(26) }),
    ],
  ])("W10.25 refused where the person's own grant %s", async (_, harm) => {
    const rig = await rigOf();
    await harm(rig);
    const before = rig.ledger.writes.length;
    const error = await failure(rig.chat.open(open()));
    expect([ErrorCode.PermissionDenied, ErrorCode.FailedPrecondition]).toContain(error.code);
    expect(error.outcome).toBe("not-executed");
    expect(rig.ledger.writes.length).toBe(before);
  });

  test("W10.25 lists that no credential could carry are refused before any row", async () => {
    const tooLarge = new CotalError(ErrorCode.ResourceExhausted, "too large", { outcome: "not-executed" });
    const rig = await rigOf();
    const chat = rig.process(rig.ledger.store(), { tryMint: () => Promise.reject(tooLarge) });
    const before = rig.ledger.writes.length;
    expect(await failure(chat.open(open()))).toMatchObject({ code: ErrorCode.ResourceExhausted });
    expect(rig.ledger.writes.length).toBe(before);
  });

  test("W10.25 without the plane nothing is opened and nothing is written (H45)", async () => {
    const rig = await rigOf();
    const edge = rig.process(rig.ledger.store(), { holdsPlane: () => false });
    const before = rig.ledger.writes.length;
    expect(await failure(edge.open(open()))).toMatchObject({ code: ErrorCode.Unavailable, outcome: "not-executed" });
    expect(rig.ledger.writes.length).toBe(before);
  });
});

describe("W10.27 one holder hash, one session", () => {
  test("W10.27 a retry is the same session, with the same end, however late", async () => {
    const rig = await rigOf();
    const first = await rig.chat.open(open());
    rig.clock.now += HOUR * 1000;
    const before = rig.ledger.writes.length;
    expect(await rig.chat.open(open())).toEqual({ ...first, at: expect.any(Number) as number });
    expect(rig.ledger.writes.length).toBe(before);
    expect(slotsOf(rig)).toEqual([HASH]);
  });

  test("W10.27 twelve at once, from two processes, are one session in one slot", async () => {
    const rig = await rigOf();
    const other = rig.process(rig.ledger.store());
    const all = await Promise.all(
      Array.from({ length: 12 }, (_, at) => (at % 2 === 0 ? rig.chat : other).open(open())),
    );
    expect(new Set(all.map(({ actor, lifecycleUid }) => `${actor} ${lifecycleUid}`)).size).toBe(1);
    expect(rig.ledger.keys("records").filter((row) => row.startsWith("uid."))).toHaveLength(2);
    expect(slotsOf(rig)).toEqual([HASH]);
  });

  test.each<[string, Partial<OpenChat>]>([
    ["other lists", { allowSubscribe: ["general"] }],
    ["another life", { lifeSeconds: 60 }],
    ["another name", { name: "Else" }],
  ])("W10.27 the same hash with %s is a conflict", async (_, over) => {
    const rig = await rigOf();
    await rig.chat.open(open());
    const before = rig.ledger.writes.length;
    expect(await failure(rig.chat.open(open(over)))).toMatchObject({
      code: ErrorCode.AlreadyExists,
      outcome: "not-executed",
    });
    expect(rig.ledger.writes.length).toBe(before);
  });

  test("W10.27 a retired hash is never admitted again; a day later neither", async () => {
    const rig = await rigOf();
    await rig.chat.open(open());
    await rig.chat.retire({ owner: OWNER, holderHash: HASH });
    const refused = async (): Promise<void> => {
      const before = rig.ledger.writes.length;
      expect(await failure(rig.chat.open(open()))).toMatchObject({
        code: ErrorCode.FailedPrecondition,
        outcome: "not-executed",
      });
      expect(rig.ledger.writes.length).toBe(before);
    };
    await refused();
    const sweep = createChatSweep(rig.parts, () => undefined);
    for (const hours of [1, 40]) {
      rig.clock.now += hours * HOUR * 1000;
      await sweep.pass();
      await sweep.idle();
    }
    expect(holderRow(rig)).toMatchObject({ state: "retired", end: "compacted" });
    await refused();
  });

  test("W10.27 the secret of another person opens nothing of this one", async () => {
    const rig = await rigOf();
    await rig.chat.open(open());
    const stranger = { owner: STRANGER, holderHash: HASH };
    expect(await failure(rig.chat.holder(stranger))).toMatchObject({ code: ErrorCode.NotFound });
    expect(await failure(rig.chat.retire(stranger))).toMatchObject({ code: ErrorCode.NotFound });
  });

  test("W10.27 an ended session's hash is refused as ended, whether or not it was swept yet", async () => {
    const rig = await rigOf();
    await rig.chat.open(open({ lifeSeconds: 60 }));
    rig.clock.now += 60_000;
    expect(await failure(rig.chat.open(open({ lifeSeconds: 60 })))).toMatchObject({ code: ErrorCode.Expired });
  });

  test("W10.27 rows that are corrupt, or another's, decide nothing", async () => {
    const rig = await rigOf();
    await rig.chat.open(open());
    rig.ledger.put("auth", key(hashOf("other")), holderRow(rig));
    expect(await failure(rig.chat.holder({ owner: OWNER, holderHash: hashOf("other") }))).toMatchObject({
      code: ErrorCode.FailedPrecondition,
    });
    rig.ledger.mark("auth", key());
    expect(await failure(rig.chat.open(open()))).toMatchObject({ code: ErrorCode.FailedPrecondition });
  });
});

describe("W10.30 the quota", () => {
  test("W10.30 so many at once and no more; nothing is written for one too many; another owner has slots of its own", async () => {
    const rig = await rigOf({ slotsPerOwner: 2 });
    for (const secret of ["one", "two"]) await rig.chat.open(open({ holderHash: hashOf(secret) }));
    const before = rig.ledger.writes.length;
    expect(await failure(rig.chat.open(open()))).toMatchObject({
      code: ErrorCode.ResourceExhausted,
      outcome: "not-executed",
    });
    expect(rig.ledger.writes.length).toBe(before);
    await rig.authority.enrol({ owner: STRANGER, actor: "cli" }, SIGN_IN);
    expect(await rig.chat.open(open({ owner: STRANGER }))).toMatchObject({ owner: STRANGER });
  });

  test("W10.30 two processes that race for the last slot: one has it, and the other's hash is fenced", async () => {
    const rig = await rigOf({ slotsPerOwner: 1 });
    const hashes = [hashOf("one"), hashOf("two")];
    const ended = await Promise.allSettled(
      hashes.map((holderHash) => rig.process(rig.ledger.store()).open(open({ holderHash }))),
    );
    expect(ended.map(({ status }) => status).toSorted()).toEqual(["fulfilled", "rejected"]);
    const lost = hashes[ended.findIndex(({ status }) => status === "rejected")] ?? "";
    expect(holderRow(rig, lost)).toMatchObject({ state: "retired", end: "fenced" });
    expect(slotsOf(rig)).toHaveLength(1);
    const sweep = createChatSweep(rig.parts, () => undefined);
    await sweep.pass();
    await sweep.idle();
    expectSettled(rig, lost);
    expect(slotsOf(rig)).toHaveLength(1);
  });

  test("W10.30 a slot comes back only when the lifecycle is settled", async () => {
    const rig = await rigOf({ slotsPerOwner: 1 });
    await rig.chat.open(open());
    const another = open({ holderHash: hashOf("another") });
    // Nobody knows whether somebody is connected; then somebody is; then nobody is.
    for (const count of [-1, 1]) {
      rig.live.count = count;
      const { remains } = await rig.chat.retire({ owner: OWNER, holderHash: HASH });
      expect(remains).toMatch(/still connected/);
      expect(holderRow(rig)).toMatchObject({ state: "retired", end: "fenced" });
      expect(slotsOf(rig)).toEqual([HASH]);
      expect(await failure(rig.chat.open(another))).toMatchObject({ code: ErrorCode.ResourceExhausted });
    }
    rig.live.count = 0;
    expect(await rig.chat.retire({ owner: OWNER, holderHash: HASH })).not.toHaveProperty("remains");
    expectSettled(rig);
    await rig.chat.open(another);
  });
});

describe("W10.28 a bearer", () => {
  const claims = (bearer: string, nowSeconds: number) => {
    const verified = verifyBearer(bearer, { ...scope, keys: [signer], nowSeconds });
    if (!verified.ok) throw new Error(verified.fault);
    return verified.claims;
  };

  test("W10.28 is the session's, and nothing more", async () => {
    const rig = await rigOf();
    const opened = await rig.chat.open(open());
    const { bearer, expires } = await bearerOf(rig);
    const { act, iat, exp } = claims(bearer, SECONDS);
    expect(act).toEqual({
      owner: OWNER,
      actor: opened.actor,
      lifecycleUid: opened.lifecycleUid,
      credentialId: rootCredentialId(opened.lifecycleUid, 1),
      name: opened.name,
    });
    expect([iat, exp, expires]).toEqual([SECONDS, SECONDS + 900, SECONDS + 900]);
    expect(await rig.authority.check(act)).toMatchObject({ ok: true });
  });

  test("W10.28 lives no longer than the proof, and no longer than the session", async () => {
    const rig = await rigOf();
    await rig.chat.open(open({ lifeSeconds: HOUR }));
    expect((await bearerOf(rig, SECONDS + 7)).expires).toBe(SECONDS + 7);
    expect(await failure(bearerOf(rig, SECONDS))).toMatchObject({ code: ErrorCode.Expired, outcome: "not-executed" });
    rig.clock.now += (HOUR - 11) * 1000;
    expect((await bearerOf(rig, proof + HOUR)).expires).toBe(SECONDS + HOUR);
    rig.clock.now += 11_000;
    expect(await failure(bearerOf(rig, proof + HOUR))).toMatchObject({ code: ErrorCode.Expired });
  });

  test.each<[string, (rig: Rig) => unknown]>([
    ["the session is retired", (rig) => rig.chat.retire({ owner: OWNER, holderHash: HASH })],
    ["the parent is narrowed", (rig) => rig.authority.narrow(cli, { allowPublish: [] })],
    ["the parent is revoked", (rig) => rig.authority.revoke(cli)],
    [
      "the root is revoked",
      (rig) => {
        const { lifecycleUid, credentialId } = actOf(rig);
        put(rig, "auth", `cred.${lifecycleUid}.${credentialId}`, { state: "revoked" });
      },
    ],
    [
      "the head is retiring",
      (rig) =>
        put(rig, "records", `lifecycle.${OWNER}.${holderRow(rig).actor}`, {
          state: "retiring",
          op: { opId: "x", kind: "retirement" },
        }),
    ],
    ["the holder row is fenced", (rig) => put(rig, "auth", key(), { state: "retired", end: "fenced" })],
    [
      "the session's row is retired",
      (rig) => put(rig, "auth", `chatsession.${holderRow(rig).lifecycleUid}`, { state: "retired" }),
    ],
  ])("W10.28 nothing is released if, while it is signed, %s", async (_, harm) => {
    const rig = await rigOf();
    await rig.chat.open(open());
    const authority = createAuthority(rig.parts);
    let looks = 0;
    const chat = createChat(rig.parts, {
      ...signing({
        check: async (act) => {
          const checked = await authority.check(act);
          looks += 1;
          if (looks === 1) await harm(rig);
          return checked;
        },
      }),
    });
    const error = await failure(chat.bearer(holderRow(rig), proof));
    expect(error).toMatchObject({ outcome: "not-executed" });
    expect(await failure(bearerOf(rig))).toMatchObject({ outcome: "not-executed" });
  });

  test("W10.28 an edge without the plane gives bearers, and writes nothing (H45)", async () => {
    const rig = await rigOf();
    await rig.chat.open(open());
    const before = rig.ledger.writes.length;
    const edge = rig.process(rig.ledger.store(), { holdsPlane: () => false });
    expect((await edge.bearer(holderRow(rig), proof)).bearer).toContain(".");
    expect(rig.ledger.writes.length).toBe(before);
  });
});

describe("W10.29 a connect", () => {
  test.each<[string, ErrorCode, (rig: Rig) => Partial<BearerAct> | void | Promise<void>]>([
    ["a view", ErrorCode.PermissionDenied, () => ({ view: "admin" })],
    ["a scope", ErrorCode.PermissionDenied, () => ({ scope: ["admin"] }) as object],
    [
      "a pending row",
      ErrorCode.PermissionDenied,
      (rig) => put(rig, "auth", `chatsession.${holderRow(rig).lifecycleUid}`, { state: "pending" }),
    ],
    [
      "a retired row",
      ErrorCode.PermissionDenied,
      (rig) => put(rig, "auth", `chatsession.${holderRow(rig).lifecycleUid}`, { state: "retired" }),
    ],
    [
      "a compacted row",
      ErrorCode.PermissionDenied,
      (rig) =>
        rig.ledger.put("auth", `chatsession.${holderRow(rig).lifecycleUid}`, {
          v: 1,
          state: "compacted",
          lifecycleUid: holderRow(rig).lifecycleUid,
          at: 1,
        }),
    ],
    [
      "the row of another session",
      ErrorCode.PermissionDenied,
      (rig) => put(rig, "auth", `chatsession.${holderRow(rig).lifecycleUid}`, { actor: `chat_${"q".repeat(26)}` }),
    ],
    [
      "another lifecycle in the row",
      ErrorCode.FailedPrecondition,
      (rig) => put(rig, "auth", `chatsession.${holderRow(rig).lifecycleUid}`, { lifecycleUid: "z".repeat(26) }),
    ],
    ["another lifecycle in the bearer", ErrorCode.PermissionDenied, () => ({ lifecycleUid: "z".repeat(26) })],
    [
      "a narrowed parent",
      ErrorCode.PermissionDenied,
      async (rig) => {
        await rig.authority.narrow(cli, { allowPublish: ["team.a"] });
      },
    ],
    [
      "a parent that was granted again as it was",
      ErrorCode.PermissionDenied,
      async (rig) => {
        rig.clock.now += 1;
        await rig.authority.grant({
          ...cli,
          ...LISTS,
          capabilities: ["spawn"],
          role: "helper",
          name: "Somebody",
          kind: "interactive",
        });
      },
    ],
    [
      "a parent whose head was written",
      ErrorCode.PermissionDenied,
      (rig) => put(rig, "records", `lifecycle.${OWNER}.cli`, {}),
    ],
    [
      "a revoked parent",
      ErrorCode.PermissionDenied,
      async (rig) => {
        await rig.authority.revoke(cli);
      },
    ],
    [
      "a holder row that is provisioning",
      ErrorCode.PermissionDenied,
      (rig) => put(rig, "auth", key(), { state: "provisioning" }),
    ],
    [
      "a holder row that is retired",
      ErrorCode.PermissionDenied,
      (rig) => put(rig, "auth", key(), { state: "retired", end: "fenced" }),
    ],
    ["a holder row that is gone", ErrorCode.FailedPrecondition, (rig) => rig.ledger.mark("auth", key())],
    [
      "a holder row of another lifecycle",
      ErrorCode.PermissionDenied,
      (rig) => put(rig, "auth", key(), { lifecycleUid: "z".repeat(26) }),
    ],
    [
      "a session that has ended",
      ErrorCode.Expired,
      (rig) => {
        rig.clock.now += 8 * HOUR * 1000;
      },
    ],
    [
      "a session that ended, under a root that did not",
      ErrorCode.Expired,
      (rig) => {
        rig.clock.now += 8 * HOUR * 1000;
        const { lifecycleUid, credentialId } = actOf(rig);
        put(rig, "auth", `cred.${lifecycleUid}.${credentialId}`, { exp: SECONDS + 100 * HOUR });
      },
    ],
    [
      "a frozen gate",
      ErrorCode.FailedPrecondition,
      (rig) =>
        rig.ledger.put("auth", `gate.${holderRow(rig).lifecycleUid}`, {
          state: "frozen",
          generation: 1,
          op: { opId: "x", kind: "takeover" },
        }),
    ],
  ])("W10.29 is refused with %s, and nothing is written", async (_, code, harm) => {
    const rig = await rigOf();
    await rig.chat.open(open());
    expect(await rig.authority.check(actOf(rig))).toMatchObject({ ok: true });
    const act = actOf(rig);
    const over = await harm(rig);
    const before = rig.ledger.writes.length;
    expect(await rig.authority.check({ ...act, ...over } as BearerAct)).toMatchObject({ ok: false, code });
    expect(rig.ledger.writes.length).toBe(before);
  });

  test("W10.29 its evidence is filed, and its read list stays what the opening wrote", async () => {
    const rig = await rigOf();
    await rig.chat.open(open({ allowSubscribe: ["team.a"] }));
    const checked = await rig.authority.check(actOf(rig));
    if (!checked.ok) throw new Error(checked.reason);
    const { lifecycleUid: uid, actor } = actOf(rig);
    const user = `U${"A".repeat(55)}`;
    await rig.authority.recordConnect(checked, { userKey: user, connId: `${uid}_${"n".repeat(26)}`, iat: 1, exp: 2 });
    expect(rig.ledger.row("auth", `natkey.${user}`)).toMatchObject({ actor, lifecycleUid: uid, view: null });
    expect(rig.ledger.row("acl", `${OWNER}.${actor}.${uid}`)).toMatchObject({ allowSubscribe: ["team.a"] });
    // Once it is retired, the read list is empty and no connect brings it back, whether or not this process
    // has settled the list before.
    await rig.chat.retire({ owner: OWNER, holderHash: HASH });
    const late = { userKey: `U${"B".repeat(55)}`, connId: `${uid}_${"n".repeat(26)}`, iat: 1, exp: 2 };
    const stranger = createAuthority(rig.parts);
    expect(await failure(stranger.recordConnect(checked, late))).toMatchObject({ code: ErrorCode.Conflict });
    await rig.authority.recordConnect(checked, { ...late, userKey: `U${"C".repeat(55)}` });
    expect(await rig.authority.recheck(checked.stamp)).toMatchObject({ ok: false });
    expect(rig.ledger.row("acl", `${OWNER}.${actor}.${uid}`)).toMatchObject({ allowSubscribe: [] });
  });

  test("W10.29 nobody signs in under a chat session's name, and the ledger of actors does not know it", async () => {
    const rig = await rigOf();
    const { actor } = await rig.chat.open(open());
    const p = { owner: OWNER, actor };
    expect(await failure(rig.authority.enrol(p, SIGN_IN))).toMatchObject({ code: ErrorCode.PermissionDenied });
    expect((await rig.authority.list({})).actors.map((one) => one.actor)).toEqual(["cli"]);
  });
});

describe("W10.27 kill -9 between any two writes", () => {
  /** How many writes it takes that nothing ends. */
  const WRITES = { open: 15, retire: 11 };

  const deaths = (count: number) =>
    Array.from({ length: count }, (_, at) => at + 1).flatMap((at) =>
      (["before", "after"] as const).map((when) => ({ at, when })),
    );

  async function dieIn(run: (store: LedgerStore) => Promise<unknown>, store: LedgerStore): Promise<boolean> {
    try {
      await run(store);
      return false;
    } catch (error) {
      if (error instanceof Died) return true;
      throw error;
    }
  }

  test.each(deaths(WRITES.open))(
    "W10.27 an opening that dies $when write $at: nothing is usable before it ends, and a retry ends it",
    async (death) => {
      const rig = await rigOf();
      expect(await dieIn((store) => rig.process(store).open(open()), rig.ledger.store(death))).toBe(true);
      const raw = rig.ledger.row("auth", key());
      const drawn = raw === undefined ? undefined : holderRow(rig);
      // Only the very last write lets anybody in.
      const done = death.at === WRITES.open && death.when === "after";
      const check = drawn === undefined ? { ok: false } : await rig.authority.check(actOf(rig));
      expect(check.ok).toBe(done);
      const opened = await rig.chat.open(open());
      expect(drawn?.lifecycleUid ?? opened.lifecycleUid).toBe(opened.lifecycleUid);
      expect(drawn?.actor ?? opened.actor).toBe(opened.actor);
      expect(await rig.authority.check(actOf(rig))).toMatchObject({ ok: true });
      expect(slotsOf(rig)).toEqual([HASH]);
      expect(rig.ledger.keys("records").filter((row) => row.startsWith("uid."))).toHaveLength(2);
    },
  );

  test.each(deaths(WRITES.open))(
    "W10.30 an opening that died $when write $at is swept to a terminal gate, and its slot is free",
    async (death) => {
      const rig = await rigOf();
      expect(await dieIn((store) => rig.process(store).open(open()), rig.ledger.store(death))).toBe(true);
      const events: string[] = [];
      const sweep = createChatSweep(rig.parts, ({ kind }) => events.push(kind));
      const swept = async (): Promise<void> => {
        await sweep.pass();
        await sweep.idle();
      };
      await swept();
      expect(events).toEqual([]);
      rig.clock.now += 9 * HOUR * 1000;
      await swept();
      const wrote = rig.ledger.row("auth", key()) !== undefined;
      expect(wrote).toBe(!(death.at === 1 && death.when === "before"));
      if (!wrote) return;
      expect(events).toContain("settled");
      expectSettled(rig);
      expect(await failure(rig.chat.open(open()))).toMatchObject({ code: ErrorCode.FailedPrecondition });
    },
  );

  test.each(deaths(WRITES.retire))(
    "W10.30 a retirement that dies $when write $at lets nobody in any more, and is finished by the sweep",
    async (death) => {
      const rig = await rigOf();
      await rig.chat.open(open());
      rig.clock.now += 1000;
      const name = { owner: OWNER, holderHash: HASH };
      await dieIn((store) => rig.process(store).retire(name), rig.ledger.store(death));
      const begun = !(death.at === 1 && death.when === "before");
      expect((await rig.authority.check(actOf(rig))).ok).toBe(!begun);
      if (!begun) return;
      const sweep = createChatSweep(rig.parts, () => undefined);
      await sweep.pass();
      await sweep.idle();
      expectSettled(rig);
      expect(rig.removed).toContain(`${OWNER}.${holderRow(rig).actor}.${holderRow(rig).lifecycleUid}`);
    },
  );
});

describe("W10.27 W10.30 an end that comes in the middle of an opening", () => {
  /** Does this once, right after the first write of that family; from then on the ledger is as ever. */
  const after = (store: LedgerStore, family: string, act: () => Promise<unknown>): LedgerStore => {
    let done = false;
    const once = async (key: string): Promise<void> => {
      if (done || !key.startsWith(family)) return;
      done = true;
      await act();
    };
    return {
      ...store,
      create: async (bucket, at, value) => {
        const revision = await store.create(bucket, at, value);
        await once(at);
        return revision;
      },
      cas: async (bucket, at, value, pinned) => {
        const revision = await store.cas(bucket, at, value, pinned);
        await once(at);
        return revision;
      },
    };
  };

  test("W10.30 a slot that is taken after the session was settled comes back", async () => {
    const rig = await rigOf();
    // Settled before the slot was there: as if the opening had slept in between.
    const settle = async (): Promise<void> => {
      const { slots, ...row } = ChatOwnerRow.parse(rig.ledger.row("auth", `chatowner.${OWNER}`));
      rig.ledger.put("auth", `chatowner.${OWNER}`, { ...row, slots: [] });
      await rig.chat.retire({ owner: OWNER, holderHash: HASH });
      rig.ledger.put("auth", `chatowner.${OWNER}`, { ...row, slots });
    };
    const late = rig.process(after(rig.ledger.store(), "chatowner.", settle));
    expect(await failure(late.open(open()))).toMatchObject({ code: ErrorCode.FailedPrecondition });
    expectSettled(rig);
  });

  test.each(["chatholder.", "chatowner.", "chatsession.", "stage.", "uid.", "gate.", "lifecycle.", OWNER])(
    "W10.27 fenced after the first write of %s: the gate never opens, and the sweep ends it",
    async (family) => {
      const rig = await rigOf();
      const edge = rig.process(rig.ledger.store(), { holdsPlane: () => false });
      const fence = () => edge.retire({ owner: OWNER, holderHash: HASH });
      const slow = rig.process(after(rig.ledger.store(), family, fence));
      expect(await failure(slow.open(open()))).toMatchObject({
        code: ErrorCode.FailedPrecondition,
        outcome: "not-executed",
      });
      const { lifecycleUid: uid } = holderRow(rig);
      expect(gateOf(rig, uid)).not.toBe("open");
      expect(rig.ledger.keys("auth").filter((row) => row.startsWith(`cred.${uid}.`))).toEqual([]);
      const sweep = createChatSweep(rig.parts, () => undefined);
      await sweep.pass();
      await sweep.idle();
      expectSettled(rig);
    },
  );
});

describe("W10.30 retiring", () => {
  test("W10.30 fence first, then the session, the gate and the head; the slot last", async () => {
    const rig = await rigOf();
    const { lifecycleUid: uid, actor } = await rig.chat.open(open());
    const at = rig.ledger.writes.length;
    rig.live.count = 1;
    await rig.chat.retire({ owner: OWNER, holderHash: HASH });
    rig.live.count = 0;
    await rig.chat.retire({ owner: OWNER, holderHash: HASH });
    expect(rig.ledger.writes.slice(at)).toEqual([
      `auth/${key()}`,
      `acl/${OWNER}.${actor}.${uid}`,
      `auth/chatsession.${uid}`,
      `auth/gate.${uid}`,
      `records/lifecycle.${OWNER}.${actor}`,
      `auth/cred.${uid}.${rootCredentialId(uid, 1)}`,
      `records/frontier.${uid}`,
      `auth/gate.${uid}`,
      `records/lifecycle.${OWNER}.${actor}`,
      `auth/chatowner.${OWNER}`,
      `auth/${key()}`,
    ]);
    expect(sessionRow(rig)).toMatchObject({ state: "retired" });
  });

  test("W10.30 again is the same end, and costs no write", async () => {
    const rig = await rigOf();
    await rig.chat.open(open());
    const name = { owner: OWNER, holderHash: HASH };
    rig.live.count = 1;
    await rig.chat.retire(name);
    const before = rig.ledger.writes.length;
    expect((await rig.chat.retire(name)).remains).toMatch(/connect/);
    expect(rig.ledger.writes.length).toBe(before);
    rig.live.count = 0;
    const all = await Promise.all([rig.chat.retire(name), rig.process(rig.ledger.store()).retire(name)]);
    expect(all.map(({ holder }) => holder.state)).toEqual(["retired", "retired"]);
    expectSettled(rig);
  });

  test("W10.30 an edge without the plane fences, and says who ends it (H45)", async () => {
    const rig = await rigOf();
    await rig.chat.open(open());
    const before = rig.ledger.writes.length;
    const edge = rig.process(rig.ledger.store(), { holdsPlane: () => false });
    expect((await edge.retire({ owner: OWNER, holderHash: HASH })).remains).toMatch(/plane/);
    expect(rig.ledger.writes.slice(before)).toEqual([`auth/${key()}`]);
    expect(await rig.authority.check(actOf(rig))).toMatchObject({ ok: false });
  });
});
