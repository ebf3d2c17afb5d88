/**
 * Credentials that the trust program made: the operator's first one, before there was a ledger, and
 * each renewal of it. Here they get their rows (§13.1: no unledgered credential).
 *
 * Invariants
 * 1. What is listed at a start is entered before the space serves; what is listed later, at the next
 *    look.
 * 2. A lifecycle that was ended stays ended: a restart never brings it back.
 * 3. One that can't be entered is passed over by name, and so is a list that can't be read. It never keeps
 *    the space from being served, or the end of the operator would be the end of everybody.
 */
import { enterCredential } from "./entry.ts";
import { type LedgerStore, createOrRead, readRow } from "./store.ts";
import { CotalError } from "../protocol/base/errors.ts";
import { dotForm, principal } from "../protocol/base/principals.ts";
import { AclRow, CredentialRow, GateRow, HeadRow, ledgerKey } from "../protocol/ledger/rows.ts";
import type { IssuedList } from "../trust/issued.ts";
import { type Holder, activateSelf } from "./self.ts";

export type PassedOver = { readonly principal: string; readonly why: string };

/**
 * Enters what is listed, still valid, and not entered by this process before. Safe to run again, and
 * beside another process.
 */
export function createIssued(
  ledger: LedgerStore,
  nowSeconds: () => number,
): (read: () => IssuedList) => Promise<PassedOver[]> {
  const entered = new Set<string>();
  return async (read) => {
    const passed: PassedOver[] = [];
    for (const one of listed(read, passed)) {
      if (one.expires <= nowSeconds() || entered.has(one.credentialId)) continue;
      const why = await enterOne(ledger, one);
      if (why === undefined) entered.add(one.credentialId);
      else passed.push({ principal: `${one.owner}.${one.actor}`, why });
    }
    return passed;
  };
}

function listed(read: () => IssuedList, passed: PassedOver[]): IssuedList {
  try {
    return read();
  } catch (thrown) {
    if (!(thrown instanceof CotalError)) throw thrown;
    passed.push({ principal: "everybody on the list", why: thrown.message });
    return [];
  }
}

/** Enters one; or says why it can't be. */
async function enterOne(ledger: LedgerStore, issued: IssuedList[number]): Promise<string | undefined> {
  const { owner, actor, uid, credentialId, expires, reads = true } = issued;
  const holder = { principal: principal(owner, actor), uid };
  const why = await obstacle(ledger, holder, credentialId);
  if (why !== undefined) return why;
  await activateSelf(ledger, holder);
  if (reads) {
    await createOrRead(ledger, "acl", ledgerKey.acl(holder.principal, uid), AclRow, {
      v: 1,
      name: actor,
      allowSubscribe: [">"],
      durables: false,
      credential: credentialId,
      at: Date.now(),
    });
  }
  await enterCredential(ledger, { ...holder, credentialId, expires });
  return undefined;
}

/** Why this one can't be let in, or its lifecycle be the current one of its alias; looked at before anything is written. */
async function obstacle(
  ledger: LedgerStore,
  { principal: who, uid }: Holder,
  credentialId: string,
): Promise<string | undefined> {
  const gate = await readRow(ledger, "auth", ledgerKey.gate(uid), GateRow);
  if (gate?.value.state === "retired" || (gate?.value.state === "frozen" && gate.value.op.kind !== "activation")) {
    return "its lifecycle was ended; cotal up, or cotal space add, makes the operator a new one";
  }
  const row = await readRow(ledger, "auth", ledgerKey.cred(uid, credentialId), CredentialRow);
  if (row?.value.state === "revoked") {
    return "this credential was taken back; cotal keys rotate makes the operator a new one";
  }
  const head = await readRow(ledger, "records", ledgerKey.head(who), HeadRow);
  if (head === undefined || head.value.state === "retired" || head.value.lifecycleUid === uid) return undefined;
  return `another lifecycle of this name is ${head.value.state}; end it: cotal deprovision ${dotForm(who)}`;
}
