/**
 * An issuance dies before, and then after, every one of its durable writes, over a real broker (§13.15, §13.1). How many
 * there are is found by running: the loop ends with the run that does not die.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createAuthority } from "../../services/auth/plane/authority.ts";
import { createIssuance } from "../../services/auth/plane/issuance.ts";
import type { PlaneParts } from "../../services/auth/plane/parts.ts";
import type { Connection } from "../../shared/broker/connect.ts";
import { type Death, Died } from "../../shared/broker/write.ts";
import { CotalError } from "../../shared/protocol/base/errors.ts";
import { callerOf } from "../../shared/protocol/endpoint/grammar.ts";
import { CredentialRow, ledgerKey } from "../../shared/protocol/ledger/rows.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { grantOf, handle, lifecycleOf, refOf, request } from "../support/issued.ts";
import { OWNER, SIGN_IN } from "../support/plane-parts.ts";
import { failure } from "../support/refusal.ts";
import { type TestSpace, startSpace } from "../support/space.ts";
import { storeParts } from "../support/store-plane.ts";

let space: TestSpace;
let store: Connection;
beforeAll(async () => {
  space = await startSpace({ auth: "user", delivery: false });
  store = await space.openStore();
}, 60_000);
afterAll(() => space.stop());

/** One process's parts; it dies at the given write. */
function parts(die?: Death): PlaneParts {
  return storeParts(space, store, die, {
    connectionsOf: () => Promise.resolve({ kind: "none" }),
    endConnections: () => Promise.resolve(true),
  });
}
const issuance = (die?: Death) => createIssuance(parts(die));

async function enrolled(actor: string) {
  const p = { owner: OWNER, actor };
  const { uid } = await createAuthority(parts()).enrol(p, SIGN_IN);
  return { ...p, uid };
}

async function stateOf(uid: string, id: string): Promise<CredentialRow["state"] | "absent"> {
  const raw = await parts().ledger.read("auth", ledgerKey.cred(uid, id));
  return raw.kind === "value" ? CredentialRow.parse(raw.value).state : "absent";
}

const isOurs = (thrown: unknown): false => {
  if (thrown instanceof CotalError) return false;
  throw thrown;
};
const isDead = (thrown: unknown): true => {
  if (thrown instanceof Died) return true;
  throw thrown;
};

describe("PI.03 an issuance dies at every write", () => {
  test.each(["before", "after"] as const)(
    "PI.03 PI.06 %s each: nothing is permitted before the last; the same request goes on, and the end of its source ends it",
    async (when) => {
      const alice = await enrolled(`alice_${when}`);
      for (let at = 1; ; at += 1) {
        const bob = await enrolled(`bob_${when}_${at}`);
        const ref = refOf(alice, at);
        const credential = { id: newKey("user").publicKey, expires: Math.floor(Date.now() / 1000) + 600 };
        const granted = await grantOf(parts().ledger, alice);
        const sources = [...granted, lifecycleOf(bob), handle(`${when}${at}`)];
        const asked = request(ref, { sources, credential });
        const resolved = () => issuance().resolve(callerOf(ref));
        const died = await issuance({ at, when })
          .issue(asked)
          .then(() => false, isDead);
        expect([at, await resolved().then(() => true, isOurs)]).toEqual([
          at,
          at === 14 || (at === 13 && when === "after"),
        ]);
        // Every other one goes on first; of the rest the source ends where it lies.
        if (at % 2 === 0) await issuance().issue(asked);
        await createAuthority(parts()).retire(bob, bob.uid);
        expect(await failure(resolved())).toBeInstanceOf(CotalError);
        expect(await failure(issuance().issue(asked))).toBeInstanceOf(CotalError);
        expect(await stateOf(alice.uid, credential.id)).not.toBe("active");
        if (died) continue;
        // Attempt, evidence, index of four sources, bob's gate, credential, its index, both gates, accepted, attempt.
        expect(at).toBe(14);
        return;
      }
    },
    60_000,
  );
});
