/**
 * Capabilities where people sign in: what is granted, what a connect makes of it, what the ACL row keeps,
 * and what a child may hold.
 */
import { decode } from "@nats-io/jwt";
import { describe, expect, test } from "vitest";
import type { Verdict } from "../../services/auth/edge/admission.ts";
import type { Grant } from "../../services/auth/plane/authority-type.ts";
import { createAuthority } from "../../services/auth/plane/authority.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import { ErrorCode } from "../../shared/protocol/base/errors.ts";
import { ECHO, echoHead, headKey, headOf } from "../support/heads.ts";
import { type MemoryLedger, memoryLedger } from "../support/memory-ledger.ts";
import { EVERYTHING, OWNER, SIGN_IN, memoryParts } from "../support/plane-parts.ts";
import { failure } from "../support/refusal.ts";
import { viewRig } from "../support/view-rig.ts";

const alice = { owner: OWNER, actor: "alice" };
const ALL = [ECHO, `${ECHO}:audit@all`, "serve"];
const USER = `U${"A".repeat(55)}`;

const grant = (over: Partial<Grant> = {}): Grant => ({
  ...alice,
  ...EVERYTHING,
  name: "Alice",
  kind: "interactive",
  capabilities: ALL,
  ...over,
});

function plane(ledger: MemoryLedger = memoryLedger(), around = (store: LedgerStore) => store) {
  ledger.put("records", headKey(ECHO), echoHead);
  const authority = createAuthority(memoryParts(around(ledger.store())));
  return { ledger, authority };
}

async function enrolled(over: Partial<Grant> = {}) {
  const made = plane();
  const { actor, lifecycleUid } = await made.authority.grant(grant(over));
  const { uid, credentialId } = await made.authority.enrol({ owner: OWNER, actor }, SIGN_IN);
  const act = { owner: OWNER, actor, lifecycleUid: uid, credentialId };
  const acl = () => made.ledger.row("acl", `${OWNER}.${actor}.${lifecycleUid}`) as { capabilities?: string[] };
  const connect = async (userKey = USER) => {
    const checked = await made.authority.check(act);
    if (!checked.ok) throw new Error(checked.reason);
    await made.authority.recordConnect(checked, { userKey, connId: `${uid}_${"n".repeat(26)}`, iat: 1, exp: 2 });
  };
  return { ...made, act, acl, connect };
}

describe("a grant", () => {
  test("A.08 a word that opens nothing is refused with those that do, and nothing is written", async () => {
    const { ledger, authority } = plane();
    const before = ledger.writes.length;
    const error = await failure(authority.grant(grant({ capabilities: ["audit"] })));
    expect(error).toMatchObject({ code: ErrorCode.BadRequest, outcome: "not-executed" });
    expect(error.next).toContain("serve");
    expect(ledger.writes.length).toBe(before);
  });

  test("a row of before that carries such a word is still one, and may be narrowed", async () => {
    const { ledger, authority } = await enrolled();
    const key = `actor.${OWNER}.alice`;
    ledger.put("auth", key, { ...(ledger.row("auth", key) as object), capabilities: ["audit", "serve"] });
    expect(await authority.narrow(alice, { capabilities: ["audit"] })).toMatchObject({ capabilities: ["audit"] });
  });

  test("narrowing takes @all off, and gives no other name of the endpoint", async () => {
    const { authority } = await enrolled({ capabilities: [`${ECHO}@all`] });
    const wider = authority.narrow(alice, { capabilities: [`${ECHO}:audit`] });
    expect(await failure(wider)).toMatchObject({ code: ErrorCode.FailedPrecondition });
    expect(await authority.narrow(alice, { capabilities: [ECHO] })).toMatchObject({ capabilities: [ECHO] });
    expect(await failure(authority.narrow(alice, { capabilities: [`${ECHO}@all`] }))).toMatchObject({
      code: ErrorCode.FailedPrecondition,
    });
  });

  test.each([
    [`${ECHO}@all`, true],
    [ECHO, true],
    [`${ECHO}:audit`, false],
    ["com.example.job", false],
    ["serve", false],
  ])(`W9.04 a child of who holds ${ECHO}@all is granted %s: %s`, async (capability, granted) => {
    const { authority } = await enrolled({ capabilities: [`${ECHO}@all`] });
    const child = authority.grant(grant({ actor: "child", parent: alice, capabilities: [capability] }));
    const ended = await child.then(
      () => "granted",
      (error: unknown) => (error as { code: string }).code,
    );
    expect(ended).toBe(granted ? "granted" : ErrorCode.PermissionDenied);
  });
});

describe("a connect", () => {
  test("PD.06 opens what the heads say now, and no more after a registration took a command away", async () => {
    const { ledger, authority, act } = await enrolled();
    const opened = async () => {
      const checked = await authority.check(act);
      return checked.ok ? checked.opened.commands.map(({ command }) => command) : checked.reason;
    };
    expect(await authority.check(act)).toMatchObject({ ok: true, opened: { serves: true } });
    expect(await opened()).toEqual(["log", "say", "stop"]);
    ledger.put("records", headKey(ECHO), headOf(ECHO, [{ command: "say", capability: "other" }, { command: "new" }]));
    expect(await opened()).toEqual(["new"]);
  });

  test("an endpoint that nobody has registered opens nothing, and keeps nobody out", async () => {
    const { authority, act } = await enrolled({ capabilities: ["com.example.none@all"] });
    expect(await authority.check(act)).toMatchObject({ ok: true, opened: { commands: [], serves: false } });
  });

  test("a head that is corrupt lets nobody in by it; who does not name it gets in", async () => {
    const { ledger, authority, act } = await enrolled();
    ledger.put("records", headKey(ECHO), { ...echoHead, more: 1 });
    const refused = await authority.check(act);
    expect(refused).toMatchObject({ ok: false, code: ErrorCode.FailedPrecondition });
    expect(refused).toMatchObject({ reason: expect.stringContaining("govern.com_example_echo") as unknown });
    await authority.grant(grant({ actor: "bob", capabilities: ["serve", "com.example.job"] }));
    const { uid, credentialId } = await authority.enrol({ owner: OWNER, actor: "bob" }, SIGN_IN);
    const bob = { owner: OWNER, actor: "bob", lifecycleUid: uid, credentialId };
    expect(await authority.check(bob)).toMatchObject({ ok: true, opened: { serves: true } });
  });

  test("W131L.11 without a capability of an endpoint nothing more is read, and the recheck reads no head", async () => {
    const read: string[] = [];
    const watching = (store: LedgerStore): LedgerStore => ({
      ...store,
      read: (bucket, key) => (read.push(`${bucket} ${key.split(".", 1)[0]}`), store.read(bucket, key)),
    });
    const { authority } = plane(memoryLedger(), watching);
    const actOf = async (capabilities: readonly string[]) => {
      await authority.grant(grant({ capabilities }));
      const { uid, credentialId } = await authority.enrol(alice, SIGN_IN);
      return { ...alice, lifecycleUid: uid, credentialId };
    };
    const rows = ["auth actor", "auth cred", "auth gate", "records lifecycle"];
    const words = await actOf(["serve", "spawn"]);
    read.length = 0;
    await authority.check(words);
    // The reservation once for a lifecycle: it is written for ever.
    expect(read.toSorted()).toEqual([...rows, "records uid"]);
    read.length = 0;
    await authority.check(words);
    expect(read.toSorted()).toEqual(rows);
    const named = await actOf(ALL);
    read.length = 0;
    const checked = await authority.check(named);
    expect(read.toSorted()).toEqual([...rows, "records govern"].toSorted());
    read.length = 0;
    if (checked.ok) await authority.recheck(checked.stamp);
    expect(read.toSorted()).toEqual(["auth actor", "auth cred", "auth gate"]);
    // A view brings nothing of an agent's: no head is asked for it.
    const viewed = await actOf([...ALL, "admin"]);
    read.length = 0;
    const none = { commands: [], serves: false };
    expect(await authority.check({ ...viewed, view: "admin" })).toMatchObject({ ok: true, opened: none });
    expect(read.toSorted()).toEqual(rows);
  });
});

describe("W9.18 the ACL row keeps what the broker has accepted", () => {
  test("from enrolment on; a wider grant waits for the next connect, a narrower one does not", async () => {
    const { authority, acl, connect } = await enrolled({ capabilities: [ECHO, "serve"] });
    expect(acl().capabilities).toEqual([ECHO, "serve"]);
    await authority.grant(grant({ capabilities: [`${ECHO}@all`, "purge", "serve"] }));
    expect(acl().capabilities).toEqual([ECHO, "serve"]);
    await connect();
    expect(acl().capabilities).toEqual([`${ECHO}@all`, "purge", "serve"]);
    await authority.narrow(alice, { capabilities: [ECHO] });
    expect(acl().capabilities).toEqual([ECHO]);
    await authority.narrow(alice, { capabilities: [] });
    expect(acl()).not.toHaveProperty("capabilities");
  });

  test("a row of before there were any is brought to them at the next connect, and not before", async () => {
    const { ledger, act, acl, authority, connect } = await enrolled();
    const key = `${OWNER}.alice.${act.lifecycleUid}`;
    const { capabilities: _, ...old } = acl();
    ledger.put("acl", key, old);
    await authority.narrow(alice, { capabilities: [ECHO] });
    expect(acl()).not.toHaveProperty("capabilities");
    await connect();
    expect(acl().capabilities).toEqual([ECHO]);
  });

  test("a connect that was decided before a narrowing does not bring them back", async () => {
    const { authority, act, acl } = await enrolled({ capabilities: [ECHO] });
    await authority.grant(grant({ capabilities: ALL }));
    const checked = await authority.check(act);
    if (!checked.ok) throw new Error(checked.reason);
    await authority.narrow(alice, { capabilities: ["serve"] });
    const late = authority.recordConnect(checked, {
      userKey: USER,
      connId: `${act.lifecycleUid}_${"n".repeat(26)}`,
      iat: 1,
      exp: 2,
    });
    expect(await failure(late)).toMatchObject({ code: ErrorCode.Conflict });
    expect(acl()).not.toHaveProperty("capabilities");
  });

  test("who is revoked has none", async () => {
    const { authority, acl } = await enrolled();
    await authority.revoke(alice);
    expect(acl()).not.toHaveProperty("capabilities");
  });

  test("unchanged ones are not written again", async () => {
    const { ledger, connect } = await enrolled();
    const before = ledger.writes.length;
    await connect();
    expect(ledger.writes.slice(before)).toEqual([`auth/natkey.${USER}`]);
  });
});

describe("W10.05 the JWT that the callout mints", () => {
  const rows = (verdict: Verdict): string[] => {
    if (verdict.kind !== "allow") throw new Error(JSON.stringify(verdict.denial));
    const { pub } = decode<{ pub: { allow: string[] } }>(verdict.userJwt).nats as { pub: { allow: string[] } };
    return pub.allow.filter((entry) => /\.ep\.(one|all|inst)\.com_/.test(entry) || entry.includes(".register."));
  };
  const signedIn = async (capabilities: readonly string[], view?: string) => {
    const rig = await viewRig();
    rig.ledger.put("records", headKey(ECHO), echoHead);
    const { lifecycleUid, actor, owner } = await rig.grant("cli", { capabilities });
    const idToken = await rig.token();
    const { bearer } = await rig.bearer({ actor, idToken, ...(view === undefined ? {} : { view }) });
    return { rig, bearer, owner, me: `${owner}.${actor}.${lifecycleUid}` };
  };

  test("W132.08 PD.06 carries a row for each command in each mode that a capability gives, with the ledger's UID", async () => {
    const { rig, bearer, owner, me } = await signedIn([`${ECHO}@all`, "serve"]);
    expect(rows(await rig.connect(bearer))).toEqual([
      `cotal.main.ep.one.com_example_echo.say.${me}.*`,
      `cotal.main.ep.all.com_example_echo.say.${me}.*`,
      `cotal.main.ep.one.com_example_echo.stop.self.${me}.*`,
      `cotal.main.ep.one.com_example_echo.stop.owner.${owner}.${me}.*`,
      `cotal.main.ep.one.provisioner.register.${me}.*`,
    ]);
  });

  test("and follows a narrowing at the next connect of the same bearer", async () => {
    const { rig, bearer, owner } = await signedIn([`${ECHO}@all`, "serve"]);
    await rig.authority.narrow({ owner, actor: "cli" }, { capabilities: [] });
    expect(rows(await rig.connect(bearer))).toEqual([]);
  });

  test("W10.09 a view carries nothing of them", async () => {
    const { rig, bearer } = await signedIn([`${ECHO}@all`, "admin", "serve"], "admin");
    const verdict = await rig.connect(bearer);
    expect(verdict.kind).toBe("allow");
    expect(rows(verdict)).toEqual([]);
  });

  test("PD.12 what its endpoints have grown to and no credential carries is denied before any evidence", async () => {
    const { rig, bearer } = await signedIn([ECHO]);
    const commands = Array.from({ length: 200 }, (_, at) => ({ command: `command-${at}` }));
    rig.ledger.put("records", headKey(ECHO), headOf(ECHO, commands));
    const before = rig.ledger.writes.length;
    const verdict = await rig.connect(bearer);
    expect(verdict).toMatchObject({ kind: "deny" });
    expect(JSON.stringify(verdict)).toMatch(/16384/);
    expect(rig.ledger.writes.length).toBe(before);
    const error = await failure(rig.grant("other", { capabilities: [ECHO] }));
    expect(error).toMatchObject({ code: ErrorCode.ResourceExhausted });
    expect(rig.ledger.writes.length).toBe(before);
  });
});
