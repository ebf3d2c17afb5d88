/**
 * The authority under every order of its steps: enrolments, freezes, reopenings, revocations and connects
 * run at once, and each read and write of the ledger is a step that the others may come between.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createAuthority } from "../../services/auth/plane/authority.ts";
import type { Checked, Enrolled } from "../../services/auth/plane/authority-type.ts";
import { type LedgerStore, readRow } from "../../shared/ledger/store.ts";
import { containedIn } from "../../shared/protocol/base/channels.ts";
import { CotalError } from "../../shared/protocol/base/errors.ts";
import { ActorRow } from "../../shared/protocol/ledger/actor-rows.ts";
import { AclRow, CredentialRow, GateRow } from "../../shared/protocol/ledger/rows.ts";
import { type MemoryLedger, memoryLedger } from "../support/memory-ledger.ts";
import { EVERYTHING, OWNER, SIGN_IN, memoryParts } from "../support/plane-parts.ts";
import { type Written, stepped, watched } from "../support/stepped-ledger.ts";

const alice = { owner: OWNER, actor: "alice" };

/** Every write that took place, and who made it. */
type Logged = Written & { readonly by: string };

type Ended<T> = { readonly ok: true; readonly value: T } | { readonly ok: false };

/** How it ended; anything but a refusal of ours fails the test. */
async function ended<T>(run: Promise<T>): Promise<Ended<T>> {
  try {
    return { ok: true, value: await run };
  } catch (error) {
    if (error instanceof CotalError) return { ok: false };
    throw error;
  }
}

/** Somebody else's operation that freezes the gate and opens it again, as a restart does. */
async function takeover(store: LedgerStore, uid: string): Promise<void> {
  const key = `gate.${uid}`;
  const gate = await readRow(store, "auth", key, GateRow);
  if (gate?.value.state !== "open") return;
  const { generation } = gate.value;
  const op = { opId: "takeover", kind: "takeover" } as const;
  const revision = await store.cas("auth", key, { state: "frozen", generation, op }, gate.revision);
  await store.cas("auth", key, { state: "open", generation: generation + 1 }, revision);
}

const gateOf = (ledger: MemoryLedger, uid: string): GateRow | undefined =>
  GateRow.safeParse(ledger.row("auth", `gate.${uid}`)).data;

const credentialsOf = (ledger: MemoryLedger, uid: string): CredentialRow[] =>
  ledger
    .keys("auth")
    .filter((key) => key.startsWith(`cred.${uid}.`))
    .map((key) => CredentialRow.parse(ledger.row("auth", key)));

describe("W131L.07 no credential under a frozen or a retired gate", () => {
  test("W131L.07 W10.08 enrolments against a revocation and a takeover, in every order", async () => {
    await fc.assert(
      fc.asyncProperty(fc.scheduler(), fc.boolean(), fc.boolean(), async (scheduler, known, freezes) => {
        const ledger = memoryLedger();
        const log: Logged[] = [];
        const quiet = createAuthority(memoryParts(ledger.store()));
        await quiet.grant({ ...alice, ...EVERYTHING, name: "Alice", kind: "interactive" });
        if (known) await quiet.enrol(alice, SIGN_IN);
        const uid = ActorRow.parse(ledger.row("auth", `actor.${OWNER}.alice`)).lifecycleUid;
        const process = (by: string) =>
          createAuthority(
            memoryParts(watched(stepped(ledger.store(), scheduler), (written) => log.push({ by, ...written }))),
          );

        let revoked = false;
        let releasedAfter = false;
        const enrol = async (by: string): Promise<Ended<Enrolled>> => {
          const began = revoked;
          const outcome = await ended(process(by).enrol(alice, SIGN_IN));
          releasedAfter ||= began && outcome.ok;
          return outcome;
        };
        const outcomes = Promise.all([
          enrol("one"),
          enrol("two"),
          ended(process("operator").revoke(alice)).then((outcome) => {
            revoked = outcome.ok;
            return enrol("late");
          }),
          freezes
            ? ended(
                takeover(
                  watched(stepped(ledger.store(), scheduler), (written) => log.push({ by: "takeover", ...written })),
                  uid,
                ),
              )
            : undefined,
        ]);
        const [one, two, late] = await scheduler.waitFor(outcomes);

        // What was released went through a touch of an open gate, made by the one who released it.
        for (const [by, outcome] of [
          ["one", one],
          ["two", two],
        ] as const) {
          const touches = log.filter((write) => write.by === by && write.key === `gate.${uid}`);
          const open = GateRow.safeParse(touches.at(-1)?.value).data?.state === "open";
          expect(outcome.ok && !open).toBe(false);
        }
        expect(releasedAfter).toBe(false);
        expect(late.ok).toBe(false);
        // The operator's word may have lost every round to others; then it is said again.
        if (!revoked) await quiet.revoke(alice);
        // Nothing usable is left: no active root under a gate that is not open, and no way in.
        expect(gateOf(ledger, uid)?.state).not.toBe("open");
        expect(credentialsOf(ledger, uid).filter(({ state }) => state === "active")).toEqual([]);
        for (const outcome of [one, two]) {
          const act = outcome.ok
            ? { ...alice, lifecycleUid: uid, credentialId: outcome.value.credentialId }
            : undefined;
          expect(act === undefined || !(await quiet.check(act)).ok).toBe(true);
        }
        expect(ledger.keys("records").filter((key) => key.startsWith("uid."))).toHaveLength(
          ledger.row("records", `uid.${uid}`) === undefined ? 0 : 1,
        );
      }),
      { numRuns: 300 },
    );
  }, 60_000);

  test("W10.07 a connect that began after the revocation ended is refused, whatever else runs", async () => {
    await fc.assert(
      fc.asyncProperty(fc.scheduler(), async (scheduler) => {
        const ledger = memoryLedger();
        const quiet = createAuthority(memoryParts(ledger.store()));
        const { uid, credentialId } = await quiet.enrol(alice, SIGN_IN);
        const act = { ...alice, lifecycleUid: uid, credentialId };
        const process = () => createAuthority(memoryParts(stepped(ledger.store(), scheduler)));
        let revoked = false;
        const connect = async (userKey: string): Promise<boolean> => {
          const authority = process();
          const began = revoked;
          const checked = await authority.check(act);
          if (!checked.ok) return false;
          const filed = await ended(
            authority.recordConnect(checked, { userKey, connId: `${uid}_${"n".repeat(26)}`, iat: 1, exp: 2 }),
          );
          const again = filed.ok && (await authority.recheck(checked.stamp)).ok;
          expect(began && again).toBe(false);
          return again;
        };
        const user = (at: string): string => `U${at.repeat(55)}`;
        await scheduler.waitFor(
          Promise.all([
            connect(user("A")),
            ended(process().enrol(alice, SIGN_IN)),
            ended(process().revoke(alice)).then(async (outcome) => {
              revoked = outcome.ok;
              return connect(user("B"));
            }),
          ]),
        );
      }),
      { numRuns: 200 },
    );
  }, 60_000);
});

describe("W9.18 the read list is never wider than the row", () => {
  const lists = [["a", "b", "c"], ["a", "b"], ["b"], ["c"], [">"]] as const;

  test("W9.18 connects against grants and narrowings, in every order", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.scheduler(),
        fc.constantFrom(...lists),
        fc.constantFrom(...lists),
        async (scheduler, granted, narrowed) => {
          const ledger = memoryLedger();
          const quiet = createAuthority(memoryParts(ledger.store()));
          const { uid, credentialId } = await quiet.enrol(alice, SIGN_IN);
          const act = { ...alice, lifecycleUid: uid, credentialId };
          const process = () => createAuthority(memoryParts(stepped(ledger.store(), scheduler)));
          let released: Extract<Checked, { ok: true }>[] = [];
          const connect = async (userKey: string): Promise<void> => {
            const authority = process();
            const checked = await authority.check(act);
            if (!checked.ok) return;
            const filed = await ended(
              authority.recordConnect(checked, { userKey, connId: `${uid}_${"n".repeat(26)}`, iat: 1, exp: 2 }),
            );
            if (filed.ok && (await authority.recheck(checked.stamp)).ok) released = [...released, checked];
          };
          await scheduler.waitFor(
            Promise.all([
              connect(`U${"A".repeat(55)}`),
              connect(`U${"B".repeat(55)}`),
              ended(
                process().grant({
                  ...alice,
                  ...EVERYTHING,
                  allowSubscribe: granted,
                  name: "Alice",
                  kind: "interactive",
                }),
              ),
              ended(process().narrow(alice, { allowSubscribe: narrowed })),
            ]),
          );
          const row = ActorRow.parse(ledger.row("auth", `actor.${OWNER}.alice`));
          const acl = AclRow.parse(ledger.row("acl", `${OWNER}.alice.${uid}`));
          expect(acl.allowSubscribe.filter((entry) => containedIn(row.allowSubscribe, entry) === undefined)).toEqual(
            [],
          );
          expect(released.length).toBeLessThanOrEqual(2);
        },
      ),
      { numRuns: 300 },
    );
  }, 60_000);
});
