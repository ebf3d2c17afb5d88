/** The authority: who is enrolled, who may connect, and what an operator's change does to both. */
import { describe, expect, test } from "vitest";
import type { Authority, ActorAdministration, Checked, Grant } from "../../services/auth/plane/authority-type.ts";
import { createAuthority } from "../../services/auth/plane/authority.ts";
import type { Connected } from "../../shared/broker/still-connected.ts";
import { managedRetirementOpId } from "../../shared/ledger/retirement.ts";
import { ROOT_LIFE_SECONDS, rootCredentialId } from "../../shared/ledger/root.ts";
import { CotalError, ErrorCode } from "../../shared/protocol/base/errors.ts";
import type { ActorRow } from "../../shared/protocol/ledger/actor-rows.ts";
import { MAX_BEARER_SECONDS } from "../../shared/trust/bearer.ts";
import { ROOT_CREDENTIAL_ID } from "../../shared/protocol/base/grammar.ts";
import { type MemoryLedger, memoryLedger } from "../support/memory-ledger.ts";
import { EVERYTHING, NOW_MS, OWNER, SIGN_IN, STRANGER, SYSTEM, memoryParts } from "../support/plane-parts.ts";
import { failure } from "../support/refusal.ts";

const alice = { owner: OWNER, actor: "alice" };
const SECONDS = NOW_MS / 1000;

type Plane = Authority & ActorAdministration;
type Parts = Parameters<typeof memoryParts>[1];

function plane(over: Parts = {}, ledger: MemoryLedger = memoryLedger()) {
  const parts = memoryParts(ledger.store(), over);
  return { ledger, parts, authority: createAuthority(parts) };
}

const grant = (over: Partial<Grant> = {}): Grant => ({
  ...alice,
  ...EVERYTHING,
  name: "Alice",
  kind: "interactive",
  ...over,
});

async function actOf(authority: Plane, p = alice) {
  const { uid, credentialId } = await authority.enrol(p, SIGN_IN);
  return { ...p, lifecycleUid: uid, credentialId };
}

async function enrolled(over: Parts = {}) {
  const made = plane(over);
  return { ...made, act: await actOf(made.authority) };
}

const yes = (checked: Checked): Extract<Checked, { ok: true }> => {
  if (checked.ok) return checked;
  throw new Error(`refused: ${checked.reason}`);
};

describe("enrolment", () => {
  test("W10.06 the row, the lifecycle and its root are durable before anything is handed back", async () => {
    const { ledger, parts, authority } = plane();
    const { uid, credentialId, actor, rootExpires } = await authority.enrol(alice, SIGN_IN);
    expect(credentialId).toMatch(ROOT_CREDENTIAL_ID);
    expect(actor).toMatchObject({
      ...alice,
      lifecycleUid: uid,
      state: "active",
      kind: "interactive",
      name: "Somebody",
    });
    expect(rootExpires).toBe(SECONDS + ROOT_LIFE_SECONDS);
    expect(ledger.row("auth", `actor.${OWNER}.alice`)).toEqual(actor);
    expect(ledger.row("records", `uid.${uid}`)).toMatchObject({ ...alice, lifecycleUid: uid });
    expect(ledger.row("auth", `gate.${uid}`)).toEqual({ state: "open", generation: 1 });
    expect(ledger.row("records", `lifecycle.${OWNER}.alice`)).toMatchObject({
      state: "active",
      lifecycleUid: uid,
      currentCredentialId: credentialId,
    });
    expect(ledger.row("auth", `cred.${uid}.${credentialId}`)).toEqual({
      credentialId,
      holderPrincipal: `${OWNER}.alice`,
      lifecycleUid: uid,
      sourceChain: ["root"],
      state: "active",
      exp: rootExpires,
    });
    expect(ledger.row("acl", `${OWNER}.alice.${uid}`)).toMatchObject({ allowSubscribe: [">"], durables: true });
    expect(parts.made).toEqual([`${OWNER}.alice.${uid}.-`]);
    const order = ["auth/actor.", "records/uid.", "auth/gate.", "records/lifecycle.", "acl/", "auth/cred."];
    const first = order.map((lead) => ledger.writes.findIndex((write) => write.startsWith(lead)));
    expect(first).toEqual(first.toSorted((a, b) => a - b));
    expect(ledger.writes.slice(-2)).toEqual([`auth/gate.${uid}`, `records/lifecycle.${OWNER}.alice`]);
  });

  test("W10.06 every exchange names the same root and stamps its end anew", async () => {
    let now = NOW_MS;
    const { ledger, authority } = plane({ now: () => now });
    const first = await authority.enrol(alice, SIGN_IN);
    now += 60_000;
    const second = await authority.enrol(alice, SIGN_IN);
    expect(second).toMatchObject({ uid: first.uid, credentialId: first.credentialId });
    expect(second.rootExpires).toBe(first.rootExpires + 60);
    expect(ledger.keys("auth").filter((key) => key.startsWith("cred."))).toHaveLength(1);
    expect(ledger.row("auth", `cred.${first.uid}.${first.credentialId}`)).toMatchObject({ exp: second.rootExpires });
  });

  test("W10.08 W131L.01 a root whose row alone was revoked is not brought back by an exchange", async () => {
    const { ledger, authority, act } = await enrolled();
    const key = `cred.${act.lifecycleUid}.${act.credentialId}`;
    ledger.put("auth", key, { ...(ledger.row("auth", key) as object), state: "revoked" });
    expect(await failure(authority.enrol(alice, SIGN_IN))).toMatchObject({ code: ErrorCode.FailedPrecondition });
    expect(ledger.row("auth", key)).toMatchObject({ state: "revoked" });
    expect(await authority.check(act)).toMatchObject({ ok: false, code: ErrorCode.PermissionDenied });
  });

  test("many at once are one incarnation", async () => {
    const ledger = memoryLedger();
    // Two processes, each of which takes its own exchanges of an actor one after another.
    const both = [plane({}, ledger), plane({}, ledger)].map(({ authority }) => authority);
    const all = await Promise.all(Array.from({ length: 12 }, async (_, at) => both[at % 2]?.enrol(alice, SIGN_IN)));
    expect(new Set(all.map((one) => `${one?.uid} ${one?.credentialId}`)).size).toBe(1);
    expect(ledger.keys("records").filter((key) => key.startsWith("uid."))).toHaveLength(1);
  });

  test("under the policy granted nobody makes an actor by signing in, and nothing is written", async () => {
    const { ledger, authority } = plane({ policy: "granted" });
    const error = await failure(authority.enrol(alice, SIGN_IN));
    expect(error).toMatchObject({ code: ErrorCode.PermissionDenied, outcome: "not-executed" });
    expect(error.next).toContain("cotal actor grant");
    expect(ledger.writes).toEqual([]);
    await authority.grant(grant({ allowSubscribe: ["general"] }));
    expect((await authority.enrol(alice, SIGN_IN)).actor).toMatchObject({ allowSubscribe: ["general"], name: "Alice" });
  });

  test.each([
    ["a chat session's name", { owner: OWNER, actor: `chat_${"c".repeat(26)}` }],
    ["a service's name", { owner: OWNER, actor: "svc_x" }],
    ["the space's own owner", { owner: SYSTEM, actor: "operator" }],
    ["an owner that no proof leads to", { owner: "local", actor: "alice" }],
  ])("nobody makes an actor under %s", async (_, p) => {
    const { ledger, authority } = plane();
    expect(await failure(authority.enrol(p, SIGN_IN))).toMatchObject({ code: ErrorCode.PermissionDenied });
    expect(ledger.writes).toEqual([]);
  });

  test.each([`chat_${"c".repeat(26)}`, "svc_x"])("the operator grants nobody the name %s", async (actor) => {
    const { ledger, authority } = plane();
    expect(await failure(authority.grant(grant({ actor })))).toMatchObject({ code: ErrorCode.PermissionDenied });
    expect(ledger.writes).toEqual([]);
  });

  test("a name that is no token is refused before anything is read", async () => {
    const { authority } = plane();
    expect(await failure(authority.enrol({ owner: OWNER, actor: "a.b" }, SIGN_IN))).toMatchObject({
      code: ErrorCode.BadRequest,
    });
  });

  test("one person makes so many actors and no more; who is there already still signs in", async () => {
    const { authority } = plane({ actorsPerOwner: 2 });
    await authority.enrol(alice, SIGN_IN);
    await authority.enrol({ ...alice, actor: "second" }, SIGN_IN);
    const third = authority.enrol({ ...alice, actor: "third" }, SIGN_IN);
    expect(await failure(third)).toMatchObject({ code: ErrorCode.ResourceExhausted });
    await authority.enrol(alice, SIGN_IN);
    await authority.enrol({ owner: STRANGER, actor: "first" }, SIGN_IN);
  });

  test("without the plane who is enrolled signs in, and a new activation is unavailable (H45)", async () => {
    let holds = true;
    const { ledger, authority } = plane({ holdsPlane: () => holds });
    await authority.enrol(alice, SIGN_IN);
    await authority.grant(grant({ actor: "granted" }));
    holds = false;
    const before = ledger.writes.length;
    for (const actor of ["new", "granted"]) {
      const error = await failure(authority.enrol({ ...alice, actor }, SIGN_IN));
      expect(error).toMatchObject({ code: ErrorCode.Unavailable, outcome: "not-executed" });
    }
    expect(ledger.writes.length).toBe(before);
    await authority.enrol(alice, SIGN_IN);
    // H45: no more than the row's end, the gate's touch, and the head's stamp.
    expect(ledger.writes.slice(before).map((write) => write.split(".", 1)[0])).toEqual(["auth/gate"]);
  });

  test("a managed agent's name lets nobody sign in", async () => {
    const { authority } = plane();
    await authority.grant(grant({ kind: "managed", secretDigest: "f".repeat(64) }));
    expect(await failure(authority.enrol(alice, SIGN_IN))).toMatchObject({ code: ErrorCode.PermissionDenied });
  });

  test("W131.01 a row that was deleted, or that names another actor, decides nothing", async () => {
    const { ledger, authority } = await enrolled();
    ledger.put("auth", `actor.${OWNER}.alice`, {
      ...(ledger.row("auth", `actor.${OWNER}.alice`) as object),
      actor: "bob",
    });
    expect(await failure(authority.enrol(alice, SIGN_IN))).toMatchObject({ code: ErrorCode.FailedPrecondition });
    ledger.mark("auth", `actor.${OWNER}.alice`);
    expect((await failure(authority.enrol(alice, SIGN_IN))).message).toContain(`actor.${OWNER}.alice`);
  });
});

describe("W10.07 a connect is decided by the live ledger", () => {
  const uidOf = ({ act }: { act: { lifecycleUid: string } }) => act.lifecycleUid;

  test("an enrolled incarnation may connect, and a second look says the same", async () => {
    const { authority, act } = await enrolled();
    const checked = yes(await authority.check(act));
    expect(checked).toMatchObject({ actor: { ...alice }, rootExpires: SECONDS + ROOT_LIFE_SECONDS });
    expect(await authority.recheck(checked.stamp)).toEqual({ ok: true });
  });

  type Made = Awaited<ReturnType<typeof enrolled>>;
  const cred = (made: Made) => `cred.${uidOf(made)}.${made.act.credentialId}`;
  const change = (made: Made, bucket: "auth" | "records", key: string, part: object) =>
    made.ledger.put(bucket, key, { ...(made.ledger.row(bucket, key) as object), ...part });
  const head = `lifecycle.${OWNER}.alice`;

  test.each<[string, ErrorCode, (made: Made) => void]>([
    [
      "the actor's row is revoked",
      ErrorCode.PermissionDenied,
      (made) => change(made, "auth", `actor.${OWNER}.alice`, { state: "revoked" }),
    ],
    [
      "the actor's row names another lifecycle",
      ErrorCode.Expired,
      (made) => change(made, "auth", `actor.${OWNER}.alice`, { lifecycleUid: "z".repeat(26) }),
    ],
    [
      "the root's row is revoked",
      ErrorCode.PermissionDenied,
      (made) => change(made, "auth", cred(made), { state: "revoked" }),
    ],
    ["the root has expired", ErrorCode.Expired, (made) => change(made, "auth", cred(made), { exp: SECONDS })],
    [
      "the root is another holder's",
      ErrorCode.Unauthenticated,
      (made) => change(made, "auth", cred(made), { holderPrincipal: `${OWNER}.bob` }),
    ],
    [
      "the root is another lifecycle's",
      ErrorCode.Unauthenticated,
      (made) => change(made, "auth", cred(made), { lifecycleUid: "z".repeat(26) }),
    ],
    [
      "the root was superseded",
      ErrorCode.Expired,
      (made) => change(made, "records", head, { currentCredentialId: `r_${"z".repeat(26)}` }),
    ],
    [
      "the head is not stamped",
      ErrorCode.Expired,
      (made) => change(made, "records", head, { currentCredentialId: undefined }),
    ],
    [
      "the head is retiring",
      ErrorCode.Expired,
      (made) => change(made, "records", head, { state: "retiring", op: { opId: "x", kind: "retirement" } }),
    ],
    ["the head is retired", ErrorCode.Expired, (made) => change(made, "records", head, { state: "retired" })],
    [
      "the head names another lifecycle",
      ErrorCode.Expired,
      (made) => change(made, "records", head, { lifecycleUid: "z".repeat(26) }),
    ],
    [
      "the head names another alias",
      ErrorCode.FailedPrecondition,
      (made) => change(made, "records", head, { actor: "bob" }),
    ],
    [
      "the gate is frozen",
      ErrorCode.FailedPrecondition,
      (made) =>
        made.ledger.put("auth", `gate.${uidOf(made)}`, {
          state: "frozen",
          generation: 1,
          op: { opId: "x", kind: "takeover" },
        }),
    ],
    [
      "the gate is retired",
      ErrorCode.FailedPrecondition,
      (made) =>
        made.ledger.put("auth", `gate.${uidOf(made)}`, {
          state: "retired",
          generation: 1,
          op: { opId: "x", kind: "retirement" },
        }),
    ],
    [
      "the actor's row is a marker",
      ErrorCode.FailedPrecondition,
      (made) => made.ledger.mark("auth", `actor.${OWNER}.alice`),
    ],
    ["the root's row is a marker", ErrorCode.FailedPrecondition, (made) => made.ledger.mark("auth", cred(made))],
    [
      "the head has a field of a newer version",
      ErrorCode.FailedPrecondition,
      (made) => change(made, "records", head, { more: 1 }),
    ],
  ])("W10.07 W131.04 refused when %s, and nothing is written", async (why, code, harm) => {
    const made = await enrolled();
    const checked = yes(await made.authority.check(made.act));
    harm(made);
    const before = made.ledger.writes.length;
    expect(await made.authority.check(made.act)).toMatchObject({ ok: false, code });
    // Nothing ends by its head alone: it is moved after the gate, which is in the stream of the recheck.
    const seen = why.includes("head") || why === "the root was superseded" ? { ok: true } : { ok: false, code };
    expect(await made.authority.recheck(checked.stamp)).toMatchObject(seen);
    expect(made.ledger.writes.length).toBe(before);
  });

  test.each([1, 2, 3, 4])("W131L.11 an end is seen by the recheck from its first write on (write %i)", async (at) => {
    const made = await enrolled();
    const { stamp } = yes(await made.authority.check(made.act));
    const dying = made.ledger.store({ at, when: "after" });
    const ending = createAuthority(memoryParts(dying));
    await ending.revoke(alice).catch(() => undefined);
    expect(await made.authority.recheck(stamp)).toMatchObject({ ok: false });
  });

  test("W131L.11 a recheck whose rows have not moved reads each of them once, and nothing else", async () => {
    const made = await enrolled();
    const { stamp } = yes(await made.authority.check(made.act));
    const store = made.ledger.store();
    const read: string[] = [];
    const watched = {
      ...store,
      read: (bucket: Parameters<typeof store.read>[0], key: string) => (
        read.push(`${bucket} ${key}`),
        store.read(bucket, key)
      ),
    };
    expect(await createAuthority(memoryParts(watched)).recheck(stamp)).toEqual({ ok: true });
    const uid = uidOf(made);
    const rows = [`actor.${OWNER}.alice`, cred(made), `gate.${uid}`].map((key) => `auth ${key}`);
    expect(read.toSorted()).toEqual(rows.toSorted());
  });

  test("W131L.11 a row that was touched and says the same is no reason to refuse", async () => {
    const made = await enrolled();
    const { stamp } = yes(await made.authority.check(made.act));
    change(made, "auth", `gate.${uidOf(made)}`, {});
    expect(await made.authority.recheck(stamp)).toEqual({ ok: true });
  });

  test.each([
    ["nobody's", { ...alice, actor: "nobody" }],
    ["another root of the same shape", { credentialId: `r_${"q".repeat(26)}` }],
    ["a user key for a root", { credentialId: `U${"A".repeat(55)}` }],
    ["an owner with a dot in it", { owner: `${OWNER}.alice`, actor: "x" }],
    ["a wildcard", { actor: "*" }],
    ["a lifecycle that is no UID", { lifecycleUid: "x.y" }],
    ["an empty claim", { owner: "" }],
  ])("W10.07 refused for the claims of %s", async (_, over) => {
    const { authority, act } = await enrolled();
    expect(await authority.check({ ...act, ...over })).toMatchObject({ ok: false });
  });

  test("W10.07 a store that can't be read lets nobody in", async () => {
    const { ledger, act } = await enrolled();
    const away = { ...ledger.store(), read: () => Promise.reject(new CotalError(ErrorCode.Unavailable, "no answer")) };
    const authority = createAuthority(memoryParts(away));
    expect(await authority.check(act)).toMatchObject({ ok: false, code: ErrorCode.Unavailable });
  });

  test("a grant that changed between the first look and the second is refused", async () => {
    const { authority, act } = await enrolled();
    const { stamp } = yes(await authority.check(act));
    await authority.narrow(alice, { allowSubscribe: ["general"] });
    expect(await authority.recheck(stamp)).toMatchObject({ ok: false, code: ErrorCode.Conflict });
  });
});

describe("what a connect leaves", () => {
  const connect = (userKey: string, uid: string) => ({
    userKey,
    connId: `${uid}_${"n".repeat(26)}`,
    iat: SECONDS,
    exp: SECONDS + 900,
  });
  const USER = `U${"A".repeat(55)}`;

  test("W131L.11 evidence under the user key, created once", async () => {
    const { ledger, authority, act } = await enrolled();
    const checked = yes(await authority.check(act));
    await authority.recordConnect(checked, connect(USER, act.lifecycleUid));
    expect(ledger.row("auth", `natkey.${USER}`)).toEqual({
      v: 1,
      space: "main",
      ...act,
      view: null,
      connId: `${act.lifecycleUid}_${"n".repeat(26)}`,
      iat: SECONDS,
      exp: SECONDS + 900,
    });
    const again = authority.recordConnect(checked, connect(USER, act.lifecycleUid));
    expect(await failure(again)).toMatchObject({ code: ErrorCode.AlreadyExists });
    const other = await actOf(authority, { ...alice, actor: "bob" });
    const theirs = authority.recordConnect(yes(await authority.check(other)), connect(USER, other.lifecycleUid));
    expect(await failure(theirs)).toMatchObject({ code: ErrorCode.AlreadyExists });
  });

  test("W9.18 the read list follows the row at the next connect, and narrows at once", async () => {
    const { ledger, authority, act } = await enrolled({ defaults: { ...EVERYTHING, allowSubscribe: ["a", "b"] } });
    const acl = () => ledger.row("acl", `${OWNER}.alice.${act.lifecycleUid}`);
    await authority.grant(grant({ allowSubscribe: ["a", "b", "c"] }));
    expect(acl()).toMatchObject({ allowSubscribe: ["a", "b"] });
    await authority.recordConnect(yes(await authority.check(act)), connect(USER, act.lifecycleUid));
    expect(acl()).toMatchObject({ allowSubscribe: ["a", "b", "c"], credential: act.credentialId, name: "Alice" });
    await authority.narrow(alice, { allowSubscribe: ["b"] });
    expect(acl()).toMatchObject({ allowSubscribe: ["b"] });
  });

  test("what takes something away is answered with how far it has come; what takes nothing away is not", async () => {
    const asked: string[] = [];
    const { ledger, authority, act } = await enrolled({
      defaults: { ...EVERYTHING, allowSubscribe: ["a", "b"] },
      isSwept: async (p, uid, revision) => {
        asked.push(`swept ${p.actor} ${uid} ${revision}`);
        return false;
      },
      endConnections: async (p) => {
        asked.push(`ended ${p.actor}`);
        return true;
      },
    });
    const key = `${OWNER}.alice.${act.lifecycleUid}`;
    expect((await authority.grant(grant({ allowSubscribe: ["a", "b", "c"] }))).narrowing).toBeUndefined();
    expect(asked).toEqual([]);
    const pending = { copies: "pending", connections: "ended" };
    expect((await authority.narrow(alice, { allowSubscribe: ["a"] })).narrowing).toEqual(pending);
    const { revision } = (await ledger.store().read("acl", key)) as { revision: number };
    expect(asked).toEqual([`swept alice ${act.lifecycleUid} ${revision}`, "ended alice"]);
    expect((await authority.grant(grant({ allowSubscribe: ["b"] }))).narrowing).toEqual(pending);
    expect(await authority.revoke(alice)).toMatchObject({ copies: "pending" });
  });

  test("a connect that was decided before a narrowing does not bring the old list back", async () => {
    const { ledger, authority, act } = await enrolled();
    const checked = yes(await authority.check(act));
    ledger.put("acl", `${OWNER}.alice.${act.lifecycleUid}`, {
      ...(ledger.row("acl", `${OWNER}.alice.${act.lifecycleUid}`) as object),
      allowSubscribe: ["other"],
    });
    await authority.narrow(alice, { allowSubscribe: ["general"] });
    const late = authority.recordConnect(checked, connect(USER, act.lifecycleUid));
    expect(await failure(late)).toMatchObject({ code: ErrorCode.Conflict });
    expect(ledger.row("acl", `${OWNER}.alice.${act.lifecycleUid}`)).toMatchObject({ allowSubscribe: [] });
  });

  test("a narrowing that changes nothing in the read list still stops a connect that is about to widen it", async () => {
    const { ledger, authority, act } = await enrolled({ defaults: { ...EVERYTHING, allowSubscribe: ["a"] } });
    await authority.grant(grant({ allowSubscribe: ["a", "b"] }));
    // The connect's write of the wider list waits until the narrowing has been through.
    let narrowed: Promise<unknown> | undefined;
    const store = ledger.store();
    const late = createAuthority(
      memoryParts({
        ...store,
        cas: async (bucket, key, value, revision) => {
          if (bucket === "acl") await (narrowed ??= authority.narrow(alice, { allowSubscribe: ["a"] }));
          return store.cas(bucket, key, value, revision);
        },
      }),
    );
    const refused = late.recordConnect(yes(await late.check(act)), connect(USER, act.lifecycleUid));
    expect(await failure(refused)).toMatchObject({ code: ErrorCode.Conflict });
    expect(ledger.row("acl", `${OWNER}.alice.${act.lifecycleUid}`)).toMatchObject({ allowSubscribe: ["a"] });
  });

  test("W9.18 a connect with a view leaves its evidence, and the read list as it was", async () => {
    const { ledger, authority, act } = await enrolled({ defaults: { ...EVERYTHING, allowSubscribe: ["a"] } });
    await authority.grant(grant({ allowSubscribe: ["a", "b"], capabilities: ["admin"] }));
    const viewed = yes(await authority.check({ ...act, view: "admin" }));
    await authority.recordConnect(viewed, connect(USER, act.lifecycleUid));
    expect(ledger.row("auth", `natkey.${USER}`)).toMatchObject({ view: "admin" });
    expect(ledger.row("acl", `${OWNER}.alice.${act.lifecycleUid}`)).toMatchObject({ allowSubscribe: ["a"] });
  });

  test("an unchanged read list is not written again", async () => {
    const { ledger, authority, act } = await enrolled();
    const before = ledger.writes.length;
    await authority.recordConnect(yes(await authority.check(act)), connect(USER, act.lifecycleUid));
    expect(ledger.writes.slice(before)).toEqual([`auth/natkey.${USER}`]);
  });
});

describe("delegation: a child lies within its parent (W9.04)", () => {
  const parent = { ...alice, actor: "parent" };
  const lists = { allowSubscribe: ["team.>"], allowPublish: ["team.a"], role: "reviewer", capabilities: ["spawn"] };
  const child = (over: Partial<Grant>): Grant =>
    grant({ actor: "child", parent, allowSubscribe: [], allowPublish: [], ...over });
  const withParent = async () => {
    const made = plane();
    await made.authority.grant(grant({ ...parent, ...lists }));
    return made;
  };

  test.each<[string, Partial<Grant>]>([
    ["the same", lists],
    ["less", { allowSubscribe: ["team.a", "team.b.>"], allowPublish: [], capabilities: [] }],
    ["nothing", {}],
  ])("%s is granted", async (_, over) => {
    const { authority } = await withParent();
    expect(await authority.grant(child(over))).toMatchObject({ state: "active" });
  });

  test.each<[string, Partial<Grant>]>([
    ["a wider read", { allowSubscribe: [">"] }],
    ["a read beside it", { allowSubscribe: ["general"] }],
    ["the family's own root", { allowSubscribe: ["team"] }],
    ["a post that it may only read", { allowPublish: ["team.b"] }],
    ["another role", { role: "other" }],
    ["a capability", { capabilities: ["admin"] }],
  ])("%s is refused, and nothing is written", async (_, over) => {
    const { ledger, authority } = await withParent();
    const before = ledger.writes.length;
    expect(await failure(authority.grant(child(over)))).toMatchObject({ code: ErrorCode.PermissionDenied });
    expect(ledger.writes.length).toBe(before);
  });

  test("one entry must contain it: two that do so together don't", async () => {
    const { authority } = plane();
    await authority.grant(grant({ ...parent, allowSubscribe: ["perm.*"] }));
    expect(await failure(authority.grant(child({ allowSubscribe: ["perm.>"] })))).toMatchObject({
      code: ErrorCode.PermissionDenied,
    });
    await authority.grant(child({ allowSubscribe: ["perm.*"] }));
  });

  test("a parent that is narrowed, revoked or begun anew bounds its children at once", async () => {
    for (const end of ["narrow", "revoke", "new lifecycle"] as const) {
      const { ledger, authority } = await withParent();
      await authority.grant(child({ allowSubscribe: ["team.a"] }));
      const act = await actOf(authority, { ...alice, actor: "child" });
      yes(await authority.check(act));
      if (end === "narrow") await authority.narrow(parent, { allowSubscribe: ["team.b"] });
      if (end === "revoke") await authority.revoke(parent);
      const key = `actor.${OWNER}.parent`;
      if (end === "new lifecycle") {
        ledger.put("auth", key, { ...(ledger.row("auth", key) as ActorRow), lifecycleUid: "z".repeat(26) });
      }
      expect(await authority.check(act)).toMatchObject({ ok: false, code: ErrorCode.PermissionDenied });
      expect(await failure(authority.enrol({ ...alice, actor: "child" }, SIGN_IN))).toMatchObject({
        code: ErrorCode.PermissionDenied,
      });
    }
  });

  test("rows that name each other let nobody in", async () => {
    const { ledger, authority } = await withParent();
    await authority.grant(child({}));
    const act = await actOf(authority, { ...alice, actor: "child" });
    const key = `actor.${OWNER}.parent`;
    ledger.put("auth", key, {
      ...(ledger.row("auth", key) as ActorRow),
      allowSubscribe: [],
      allowPublish: [],
      capabilities: [],
      role: undefined,
      parent: { ...alice, actor: "child", lifecycleUid: act.lifecycleUid },
    });
    expect(await authority.check(act)).toMatchObject({ ok: false, code: ErrorCode.PermissionDenied });
  });

  test("a parent that is nobody, or the actor itself, is refused", async () => {
    const { authority } = plane();
    expect(await failure(authority.grant(child({})))).toMatchObject({ code: ErrorCode.FailedPrecondition });
    await authority.grant(grant());
    expect(await failure(authority.grant(grant({ parent: alice })))).toMatchObject({
      code: ErrorCode.FailedPrecondition,
    });
  });
});

describe("an operator's changes", () => {
  test("a grant is spelled one way, and a second one changes the same lifecycle", async () => {
    const { ledger, authority, act } = await enrolled();
    const given = { allowSubscribe: ["b", "a", "a", "a.>"], capabilities: ["spawn", "admin", "spawn"] };
    const row = await authority.grant(grant(given));
    expect(row).toMatchObject({ allowSubscribe: ["a", "a.>", "b"], capabilities: ["admin", "spawn"] });
    expect(row.lifecycleUid).toBe(act.lifecycleUid);
    const { narrowing: _, ...stored } = row;
    expect(ledger.row("auth", `actor.${OWNER}.alice`)).toEqual(stored);
  });

  test("what no credential could carry is refused before any row", async () => {
    const tryMint = () => Promise.reject(new CotalError(ErrorCode.ResourceExhausted, "too large"));
    const { ledger, authority } = plane({ tryMint });
    expect(await failure(authority.grant(grant()))).toMatchObject({ code: ErrorCode.ResourceExhausted });
    expect(await failure(authority.enrol(alice, SIGN_IN))).toMatchObject({ code: ErrorCode.ResourceExhausted });
    expect(ledger.writes).toEqual([]);
  });

  test.each<[string, Partial<Grant>, ErrorCode]>([
    ["the space's own owner", { owner: SYSTEM }, ErrorCode.BadRequest],
    ["an owner that is no token of a person", { owner: "local" }, ErrorCode.BadRequest],
    ["a person with a secret", { secretDigest: "f".repeat(64) }, ErrorCode.BadRequest],
    ["an agent without one", { kind: "managed" }, ErrorCode.BadRequest],
    ["a name of two lines", { name: "a\nb" }, ErrorCode.BadRequest],
  ])("refused: %s", async (_, over, code) => {
    const { ledger, authority } = plane();
    expect(await failure(authority.grant(grant(over)))).toMatchObject({ code });
    expect(ledger.writes).toEqual([]);
  });

  test("narrowing only takes away", async () => {
    const { authority } = plane();
    await authority.grant(
      grant({ allowSubscribe: ["team.>"], allowPublish: ["x"], role: "r", capabilities: ["spawn"] }),
    );
    expect(await failure(authority.narrow(alice, { allowSubscribe: [">"] }))).toMatchObject({
      code: ErrorCode.FailedPrecondition,
    });
    expect(await failure(authority.narrow(alice, { role: "other" }))).toMatchObject({
      code: ErrorCode.FailedPrecondition,
    });
    const row = await authority.narrow(alice, { allowSubscribe: ["team.a"], role: "" });
    expect(row).toMatchObject({ allowSubscribe: ["team.a"], allowPublish: ["x"], capabilities: ["spawn"] });
    expect(row).not.toHaveProperty("role");
  });

  test("W10.08 one revocation denies every bearer of the incarnation, and revokes its root", async () => {
    const { ledger, authority, act } = await enrolled();
    expect(await authority.revoke(alice)).toEqual({
      uid: act.lifecycleUid,
      opId: managedRetirementOpId(act.lifecycleUid),
      connections: { kind: "none" },
      copies: "swept",
    });
    expect(await authority.check(act)).toMatchObject({ ok: false, code: ErrorCode.PermissionDenied });
    expect(await failure(authority.enrol(alice, SIGN_IN))).toMatchObject({ code: ErrorCode.PermissionDenied });
    expect(ledger.row("auth", `gate.${act.lifecycleUid}`)).toMatchObject({
      state: "retired",
      op: { kind: "retirement" },
    });
    expect(ledger.row("auth", `cred.${act.lifecycleUid}.${act.credentialId}`)).toMatchObject({ state: "revoked" });
    expect(ledger.row("acl", `${OWNER}.alice.${act.lifecycleUid}`)).toMatchObject({ allowSubscribe: [] });
    // It is over.
    expect(await authority.revoke(alice)).toMatchObject({ uid: act.lifecycleUid, opId: undefined });
  });

  test("an actor that never signed in is revoked without a lifecycle, and unknown ones are named", async () => {
    const { authority } = plane();
    await authority.grant(grant());
    expect(await authority.revoke(alice)).toMatchObject({ opId: undefined });
    expect(await failure(authority.revoke({ ...alice, actor: "nobody" }))).toMatchObject({
      code: ErrorCode.NotFound,
    });
    expect(await failure(authority.narrow(alice, {}))).toMatchObject({ code: ErrorCode.FailedPrecondition });
  });

  test("W131.06 W131.13 a revoked name is granted again once it is proved that nobody is connected, under a fresh UID", async () => {
    const asked: unknown[] = [];
    let found: Connected = { kind: "some", count: 2 };
    const { ledger, parts, authority } = plane({
      connectionsOf: async (p) => {
        // What would let a new one in is shut before the question is put.
        asked.push([p.actor, ledger.row("auth", `gate.${act.lifecycleUid}`)]);
        return found;
      },
    });
    const act = await actOf(authority);
    const { remains } = await authority.revoke(alice);
    expect(remains).toContain("still connected: 2 connections");
    const early = await failure(authority.grant(grant()));
    expect(early).toMatchObject({ code: ErrorCode.FailedPrecondition, outcome: "not-executed" });
    expect(early.message).toContain("still connected: 2 connections");
    expect(early.next).toContain(new Date(NOW_MS + MAX_BEARER_SECONDS * 1000).toISOString());
    expect(ledger.row("auth", `actor.${OWNER}.alice`)).toMatchObject({ state: "revoked" });
    expect(parts.removed).toEqual([]);
    const shut = ["alice", expect.objectContaining({ state: "frozen" })];
    expect(asked).toEqual([shut, shut]);
    found = { kind: "none" };
    const row = await authority.grant(grant());
    expect(row.lifecycleUid).not.toBe(act.lifecycleUid);
    expect(parts.removed).toEqual([`${OWNER}.alice.${act.lifecycleUid}`]);
    expect(ledger.row("auth", `gate.${act.lifecycleUid}`)).toMatchObject({ state: "retired" });
    expect(ledger.row("records", `frontier.${act.lifecycleUid}`)).toMatchObject({ streams: { DM_main: 7 } });
    expect(await authority.check(act)).toMatchObject({ ok: false });
    const next = await actOf(authority);
    expect(next.lifecycleUid).toBe(row.lifecycleUid);
    expect(next.credentialId).toBe(rootCredentialId(row.lifecycleUid, 1));
    yes(await authority.check(next));
  });

  test("W131.13 no time frees a revoked name: without a proof it is refused, with what is missing", async () => {
    let now = NOW_MS;
    const { ledger, parts, authority } = plane({
      now: () => now,
      connectionsOf: () =>
        Promise.resolve({ kind: "unknown", code: ErrorCode.Unavailable, why: "nobody answered", next: "ask later" }),
    });
    const act = await actOf(authority);
    await authority.revoke(alice);
    now += 365 * 24 * 3600 * 1000;
    const refused = await failure(authority.grant(grant()));
    expect(refused).toMatchObject({ code: ErrorCode.Unavailable, outcome: "not-executed", next: "ask later" });
    expect(refused.message).toContain("nobody answered");
    expect(ledger.row("records", `lifecycle.${OWNER}.alice`)).toMatchObject({
      state: "retiring",
      lifecycleUid: act.lifecycleUid,
    });
    expect(parts.removed).toEqual([]);
  });

  test("without the plane nothing is changed, and the list is still read", async () => {
    let holds = true;
    const { authority } = plane({ holdsPlane: () => holds });
    await authority.grant(grant());
    holds = false;
    for (const change of [authority.grant(grant()), authority.narrow(alice, {}), authority.revoke(alice)]) {
      expect(await failure(change)).toMatchObject({ code: ErrorCode.Unavailable });
    }
    expect((await authority.list({})).actors.map(({ actor }) => actor)).toEqual(["alice"]);
  });

  test("the list names rows that do not parse, and is cut where an answer is full", async () => {
    const { ledger, authority } = plane({ answerBytes: () => 700 });
    for (const actor of ["a1", "a2", "a3"]) await authority.grant(grant({ actor }));
    ledger.put("auth", `actor.${OWNER}.a2`, { v: 2 });
    const page = await authority.list({ owner: OWNER });
    expect(page.actors.map(({ actor }) => actor)).toEqual(["a1", "a3"]);
    expect(page.unreadable).toEqual([`actor.${OWNER}.a2`]);
    const cut = await createAuthority(memoryParts(ledger.store(), { answerBytes: () => 10 })).list({ owner: OWNER });
    expect(cut).toMatchObject({ actors: [{ actor: "a1" }], cursor: 2 });
  });
});
