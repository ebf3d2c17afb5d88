/** What the plane promises of issued authority (§13.15): who may write, and that nothing is taken back before it is proved. */
import { describe, expect, test } from "vitest";
import { createAuthority } from "../../services/auth/plane/authority.ts";
import { createIssuance } from "../../services/auth/plane/issuance.ts";
import { type Principal, dotForm } from "../../shared/protocol/base/principals.ts";
import { callerOf } from "../../shared/protocol/endpoint/grammar.ts";
import { CEILING, generation, grantOf, handle, lifecycleOf, refOf, request, userKey } from "../support/issued.ts";
import { memoryLedger } from "../support/memory-ledger.ts";
import { NOW_MS, OWNER, SIGN_IN, memoryParts } from "../support/plane-parts.ts";
import { failure } from "../support/refusal.ts";

const alice = { owner: OWNER, actor: "alice" };
const bob = { owner: OWNER, actor: "bob" };
const credential = { id: userKey("A"), expires: NOW_MS / 1000 + 600 };

/** A plane in which whether connections have ended is the test's to say; it hears who was asked about. */
async function plane() {
  const ledger = memoryLedger();
  const asked: string[] = [];
  let proves = false;
  const parts = memoryParts(ledger.store(), {
    endConnections: (p: Principal) => {
      asked.push(dotForm(p));
      return Promise.resolve(proves);
    },
  });
  const authority = createAuthority(parts);
  const [one, two] = [await authority.enrol(alice, SIGN_IN), await authority.enrol(bob, SIGN_IN)];
  return {
    parts,
    ledger,
    authority,
    asked,
    prove: () => {
      proves = true;
    },
    grant: await grantOf(parts.ledger, { ...alice, uid: one.uid }),
    holder: { ...alice, uid: one.uid },
    source: { ...bob, uid: two.uid },
    issuance: createIssuance(parts),
  };
}

describe("PI.06 what is taken back", () => {
  test("PI.06 an end waits for the proof that holders of what came from it are gone, and is contained meanwhile", async () => {
    const { issuance, authority, ledger, asked, prove, holder, source, grant } = await plane();
    const ref = refOf(holder);
    await issuance.issue(request(ref, { sources: [...grant, lifecycleOf(source)], credential }));
    const head = () => ledger.row("records", `lifecycle.${OWNER}.bob`);
    const waiting = await authority.revoke(bob);
    expect(waiting).toMatchObject({ opId: `retire-${source.uid}`, connections: { kind: "none" } });
    expect(waiting.remains).toContain(`${OWNER}.alice`);
    expect(head()).toMatchObject({ state: "retiring" });
    expect(await failure(authority.retire(bob, source.uid))).toMatchObject({ code: "unavailable" });
    expect(await failure(issuance.resolve(callerOf(ref)))).toMatchObject({ code: "expired" });
    prove();
    await authority.retire(bob, source.uid);
    expect(head()).toMatchObject({ state: "retired" });
    expect(new Set(asked)).toEqual(new Set([`${OWNER}.alice`]));
    // Alice herself goes on.
    await authority.enrol(alice, SIGN_IN);
  });

  test("PI.06 an end from which nothing was issued asks about nobody else", async () => {
    const { authority, asked, source, issuance, holder, grant } = await plane();
    await issuance.issue(request(refOf(holder), { sources: grant, credential }));
    await authority.retire(bob, source.uid);
    expect(asked).toEqual([]);
  });

  test("W131L.02 W131L.03 a revoked handle, and a withdrawn issuance, are refused at once, and done when their holders are proved gone", async () => {
    const { issuance, prove, holder, source, grant } = await plane();
    const principal = { owner: OWNER, actor: "bob" };
    const entry = { principal, uid: source.uid, credentialId: userKey("B"), expires: credential.expires };
    await issuance.redeem({ ...entry, handles: [handle("parent"), handle("leaf")] });
    await issuance.issue(request(refOf(holder), { sources: grant, credential }));
    for (const back of [() => issuance.revokeHandle(handle("parent")), () => issuance.withdraw(refOf(holder))]) {
      expect(await failure(back())).toMatchObject({ code: "unavailable", outcome: "not-executed" });
    }
    const again = { ...entry, credentialId: userKey("C"), handles: [handle("parent")] };
    expect(await failure(issuance.redeem(again))).toMatchObject({ code: "expired" });
    expect(await failure(issuance.resolve(callerOf(refOf(holder))))).toMatchObject({ code: "expired" });
    prove();
    await issuance.revokeHandle(handle("parent"));
    await issuance.withdraw(refOf(holder));
  });

  test("PI.04 a renewal under another ceiling is done when what it was issued before is proved gone", async () => {
    const { issuance, asked, prove, holder, grant } = await plane();
    const held = request(refOf(holder), { sources: grant, credential });
    await issuance.issue(held);
    const narrower = { ...CEILING, pub: { allow: [], deny: [] } };
    const next = {
      ...held,
      permissions: narrower,
      credential: { ...credential, id: userKey("B") },
      next: generation(2),
    };
    expect(await failure(issuance.renew(next))).toMatchObject({ code: "unavailable" });
    prove();
    expect(await issuance.renew(next)).toEqual(refOf(holder, 2));
    expect(await issuance.renew({ ...held, next: generation(3) }).catch(() => "over")).toBe("over");
    expect(asked).toEqual([`${OWNER}.alice`, `${OWNER}.alice`]);
  });
});

describe("PI.04 a grant is a source", () => {
  test("PI.04 a narrowing ends what was issued from the grant before it; what names no grant, or an old one, is refused", async () => {
    const { issuance, authority, parts, holder, grant } = await plane();
    const held = request(refOf(holder), { sources: grant, credential });
    const unnamed = { code: "failed-precondition", outcome: "not-executed" };
    expect(await failure(issuance.issue({ ...held, sources: [] }))).toMatchObject(unnamed);
    await issuance.issue(held);
    await authority.narrow(alice, { allowPublish: [] });
    expect(await failure(issuance.resolve(callerOf(refOf(holder))))).toMatchObject({ code: "expired" });
    expect(await failure(issuance.issue(held))).toMatchObject(unnamed);
    const anew = { ...held, credential: { ...credential, id: userKey("B") }, ref: refOf(holder, 2) };
    await issuance.issue({ ...anew, sources: await grantOf(parts.ledger, holder) });
    await issuance.resolve(callerOf(refOf(holder, 2)));
  });
});

describe("PI.03 who issues", () => {
  test("PI.03 the plane of that space, and no other process", async () => {
    const { parts, issuance, holder, grant } = await plane();
    const elsewhere = createIssuance({ ...parts, holdsPlane: () => false });
    const asked = request(refOf(holder), { sources: grant, credential });
    expect(await failure(elsewhere.issue(asked))).toMatchObject({
      code: "unavailable",
    });
    expect(await failure(elsewhere.revokeHandle(handle("h1")))).toMatchObject({ code: "unavailable" });
    const other = request({ ...refOf(holder), space: "lab" }, { credential });
    expect(await failure(issuance.issue(other))).toMatchObject({ code: "bad-request" });
    await issuance.issue(asked);
    // Asking needs no plane.
    expect(await elsewhere.resolve(callerOf(refOf(holder)))).toMatchObject({ evidence: { ref: refOf(holder) } });
  });
});
