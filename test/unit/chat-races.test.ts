/**
 * Chat sessions under every order of their steps: openings, bearers, retirements, sweeps and changes of the
 * parent run at once, and each read and write of the ledger is a step that the others may come between.
 */
import fc from "fast-check";
import { expect, test } from "vitest";
import { createAuthority } from "../../services/auth/plane/authority.ts";
import { type Chat, createChat } from "../../services/auth/plane/chat/chat.ts";
import { ADMISSION_QUIET_MS, createChatSweep } from "../../services/auth/plane/chat/sweep.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import { CotalError } from "../../shared/protocol/base/errors.ts";
import {
  ChatHolderRow,
  ChatOwnerRow,
  ChatSessionRow,
  END_EDGES,
  HOLDER_EDGES,
  SESSION_EDGES,
  mayMove,
} from "../../shared/protocol/ledger/chat-rows.ts";
import { CredentialRow, GateRow, HeadRow } from "../../shared/protocol/ledger/rows.ts";
import { bearerSigner, newBearerJwk, verifyBearer } from "../../shared/trust/bearer.ts";
import { hashOf, memoryChatParts, memoryHolderPage } from "../support/chat-parts.ts";
import { type MemoryLedger, memoryLedger } from "../support/memory-ledger.ts";
import { NOW_MS, OWNER, SIGN_IN } from "../support/plane-parts.ts";
import { type Written, stepped, watched } from "../support/stepped-ledger.ts";

const SECONDS = NOW_MS / 1000;
const cli = { owner: OWNER, actor: "cli" };
const name = { owner: OWNER, holderHash: hashOf("the secret") };
const holderKey = `chatholder.${OWNER}.${name.holderHash}`;
const signer = bearerSigner(newBearerJwk());
const scope = { issuer: "cotal:main:test", audience: "cotal:main" };

/** How it ended; anything but a refusal of ours fails the test. */
async function ended<T>(run: Promise<T>): Promise<T | undefined> {
  try {
    return await run;
  } catch (error) {
    if (error instanceof CotalError) return undefined;
    throw error;
  }
}

const parse = <T>(schema: { safeParse: (value: unknown) => { readonly data?: T } }, value: unknown): T | undefined =>
  schema.safeParse(value).data;

const holderOf = (ledger: MemoryLedger) => parse(ChatHolderRow, ledger.row("auth", holderKey));

/** What a look at each write finds wrong; nothing, if all is well. */
function judge(ledger: MemoryLedger) {
  const wrong: string[] = [];
  const last = new Map<string, unknown>();
  const slots = (value: unknown): number => parse(ChatOwnerRow, value)?.slots.length ?? 0;
  return {
    wrong,
    onWrite: ({ key, value }: Written): void => {
      const before = last.get(key);
      last.set(key, value);
      if (key === holderKey) wrong.push(...ofHolder(parse(ChatHolderRow, before), ChatHolderRow.parse(value)));
      if (key.startsWith("chatsession.")) {
        const [from, to] = [parse(ChatSessionRow, before)?.state ?? "absent", ChatSessionRow.parse(value).state];
        if (!mayMove(SESSION_EDGES, from, to)) wrong.push(`session ${from} to ${to}`);
      }
      if (key === `chatowner.${OWNER}` && slots(value) < slots(before)) {
        const holder = holderOf(ledger);
        const gate = parse(GateRow, ledger.row("auth", `gate.${holder?.lifecycleUid}`))?.state;
        const head = parse(HeadRow, ledger.row("records", `lifecycle.${OWNER}.${holder?.actor}`))?.state;
        if (gate !== "retired" || head !== "retired") wrong.push(`slot released under gate ${gate}, head ${head}`);
      }
    },
  };
}

function ofHolder(before: ChatHolderRow | undefined, after: ChatHolderRow): string[] {
  const [from, to] = [before?.state ?? "absent", after.state];
  if (before !== undefined && before.lifecycleUid !== after.lifecycleUid) return ["the holder row binds another UID"];
  if (before !== undefined && before.exp !== after.exp) return ["the end was moved"];
  if (from !== "retired" || to !== "retired") return mayMove(HOLDER_EDGES, from, to) ? [] : [`holder ${from} to ${to}`];
  const ends = [before, after].map((row) => (row?.state === "retired" ? row.end : "fenced"));
  const [fromEnd = "fenced", toEnd = "fenced"] = ends;
  return mayMove(END_EDGES, fromEnd, toEnd) ? [] : [`end ${fromEnd} to ${toEnd}`];
}

test("W10.27 W10.28 W10.29 W10.30 openings, bearers, retirements, sweeps and a parent's change, in every order", async () => {
  let [opened, released] = [0, 0];
  await fc.assert(
    fc.asyncProperty(
      fc.scheduler(),
      fc.boolean(),
      fc.subarray(["retire", "sweep", "narrow", "revoke"] as const),
      async (scheduler, known, acts) => {
        const ledger = memoryLedger();
        const { wrong, onWrite } = judge(ledger);
        const quiet = memoryChatParts(watched(ledger.store(), onWrite), { now: () => NOW_MS });
        const quietAuthority = createAuthority(quiet);
        await quietAuthority.enrol(cli, SIGN_IN);
        const made = (store: LedgerStore): Chat => {
          const parts = memoryChatParts(store, { now: () => NOW_MS });
          return createChat(parts, { authority: createAuthority(parts), bearer: { ...scope, signer } });
        };
        const own = (): LedgerStore => watched(stepped(ledger.store(), scheduler), onWrite);
        if (known) await made(watched(ledger.store(), onWrite)).open(name);

        // From when on nobody may be let in any more who was opened before.
        let over = false;
        let late = false;
        const bearer = async (): Promise<void> => {
          const chat = made(own());
          const began = over;
          const got = await ended(chat.holder(name).then((holder) => chat.bearer(holder, SECONDS + 3600)));
          if (got === undefined) return;
          released += 1;
          if (!began) return;
          // What was opened after a narrowing is pinned to the parent as it is then, and is good.
          const verified = verifyBearer(got.bearer, { ...scope, keys: [signer], nowSeconds: SECONDS });
          late ||= !verified.ok || !(await quietAuthority.check(verified.claims.act)).ok;
        };
        const sweep = async (): Promise<void> => {
          const parts = memoryChatParts(own(), { now: () => NOW_MS + ADMISSION_QUIET_MS });
          const one = createChatSweep({ ...parts, holderPage: memoryHolderPage(parts.ledger) }, () => undefined);
          await one.pass();
          await one.idle();
        };
        const authority = createAuthority(memoryChatParts(own()));
        const run = {
          retire: async () => {
            over ||= (await ended(made(own()).retire(name))) !== undefined;
          },
          sweep,
          narrow: async () => {
            over ||= (await ended(authority.narrow(cli, { allowSubscribe: ["only"] }))) !== undefined;
          },
          revoke: async () => {
            over ||= (await ended(authority.revoke(cli))) !== undefined;
          },
        };
        const outcomes = Promise.all([
          ended(made(own()).open(name)),
          ended(made(own()).open(name)),
          bearer(),
          ...acts.map(async (act) => {
            await run[act]();
            await bearer();
          }),
        ]);
        const [one, two] = await scheduler.waitFor(outcomes);
        if (one !== undefined || two !== undefined) opened += 1;
        expect(late).toBe(false);
        expect(one === undefined || two === undefined || one.lifecycleUid === two.lifecycleUid).toBe(true);

        // Nothing is left open: whoever finishes it finds everything there, and nothing usable after it.
        const holder = holderOf(ledger);
        await ended(made(watched(ledger.store(), onWrite)).retire(name));
        expect(wrong).toEqual([]);
        expect(parse(ChatOwnerRow, ledger.row("auth", `chatowner.${OWNER}`))?.slots ?? []).toEqual([]);
        if (holder === undefined) return;
        const { lifecycleUid: uid } = holder;
        expect(holderOf(ledger)).toMatchObject({ state: "retired", end: "settled" });
        expect(parse(GateRow, ledger.row("auth", `gate.${uid}`))?.state).toBe("retired");
        const credentials = ledger.keys("auth").filter((key) => key.startsWith(`cred.${uid}.`));
        expect(credentials.map((key) => parse(CredentialRow, ledger.row("auth", key))?.state)).not.toContain("active");
        expect(ledger.keys("records").filter((key) => key.startsWith("uid."))).toHaveLength(2);
      },
    ),
    { numRuns: 300 },
  );
  // The orders were not all of one kind.
  expect(Math.min(opened, released)).toBeGreaterThan(10);
}, 90_000);

const CHANGES = ["retire", "narrow", "revoke"] as const;

test("W10.28 W10.29 a bearer that was signed while its session or its parent ended is good for no connect", async () => {
  let released = 0;
  await fc.assert(
    fc.asyncProperty(fc.scheduler(), fc.constantFrom(...CHANGES), fc.nat(25), async (scheduler, act, after) => {
      const ledger = memoryLedger();
      const parts = memoryChatParts(ledger.store(), { now: () => NOW_MS });
      const authority = createAuthority(parts);
      await authority.enrol(cli, SIGN_IN);
      const quiet = createChat(parts, { authority, bearer: { ...scope, signer } });
      await quiet.open(name);
      const holder = await quiet.holder(name);
      const slow = memoryChatParts(stepped(ledger.store(), scheduler), { now: () => NOW_MS });
      const chat = createChat(slow, { authority: createAuthority(slow), bearer: { ...scope, signer } });
      const change = async (): Promise<void> => {
        for (let step = 0; step <= after; step += 1) await scheduler.schedule(Promise.resolve(), act);
        if (act === "retire") await quiet.retire(name);
        else if (act === "revoke") await authority.revoke(cli);
        else await authority.narrow(cli, { allowPublish: [] });
      };
      const bearer = ended(chat.bearer(holder, SECONDS + 3600));
      const [got] = await scheduler.waitFor(Promise.all([bearer, change()]));
      if (got === undefined) return;
      released += 1;
      const verified = verifyBearer(got.bearer, { ...scope, keys: [signer], nowSeconds: SECONDS });
      const checked = verified.ok ? await authority.check(verified.claims.act) : undefined;
      expect(checked).toMatchObject({ ok: false });
    }),
    { numRuns: 200 },
  );
  expect(released).toBeGreaterThan(5);
}, 60_000);
