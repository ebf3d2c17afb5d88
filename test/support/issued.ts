/** What issued authority is tried with: references, ceilings, handles, keys. */
import type { IssueRequest } from "../../shared/ledger/issuance.ts";
import type { IssuedPermissions } from "../../shared/protocol/ledger/issued-rows.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import type { HandleSource, IssuedRef, LifecycleSource, Source } from "../../shared/protocol/ledger/source-rows.ts";

type Holder = { readonly owner: string; readonly actor: string; readonly uid: string };

/** 32 hex digits from a number. */
export const generation = (n: number): string => n.toString(16).padStart(32, "0");

/** A user key that nobody holds. */
export const userKey = (letter: string): string => `U${letter.repeat(55)}`;

export const refOf = ({ owner, actor, uid }: Holder, n = 1): IssuedRef => ({
  space: "main",
  owner,
  actor,
  uid,
  generation: generation(n),
});

export const lifecycleOf = ({ owner, actor, uid }: Holder): LifecycleSource => ({
  kind: "lifecycle",
  owner,
  actor,
  uid,
});

/** The grant of an actor as it stands now; none where nobody is granted by a row. */
export async function grantOf(store: Pick<LedgerStore, "read">, { owner, actor, uid }: Holder): Promise<Source[]> {
  const row = await store.read("auth", `actor.${owner}.${actor}`);
  return row.kind === "value" ? [{ kind: "grant", owner, actor, uid, revision: row.revision }] : [];
}

export const handle = (id: string): HandleSource => ({ kind: "handle", issuerKeyId: "key1", id });

export const CEILING: IssuedPermissions = {
  pub: { allow: ["cotal.main.ep.v1.one.com_example_echo.say.>"], deny: [] },
  sub: { allow: ["cotal.main.ep.v1.reply.>"], deny: [] },
};

export const request = (ref: IssuedRef, over: Partial<IssueRequest> = {}): IssueRequest => ({
  ref,
  sources: [],
  permissions: CEILING,
  credential: { id: userKey("A"), expires: 2_000_000_000 },
  ...over,
});
