/** The sweep of chat sessions under a clock of the test's: what it ends when, and what a pass may cost. */
import { describe, expect, test, vi } from "vitest";
import { createAuthority } from "../../services/auth/plane/authority.ts";
import { type OpenChat, openChat } from "../../services/auth/plane/chat/open.ts";
import type { ChatParts } from "../../services/auth/plane/chat/parts.ts";
import { type SweepEvent, createChatSweep, dueOf, keepSweeping } from "../../services/auth/plane/chat/sweep.ts";
import { canonicalDigest } from "../../shared/protocol/base/canonical.ts";
import { CotalError, ErrorCode } from "../../shared/protocol/base/errors.ts";
import { ChatHolderRow, chatKey } from "../../shared/protocol/ledger/chat-rows.ts";
import { hashOf, memoryChatParts, memoryHolderPage } from "../support/chat-parts.ts";
import { type Death, Died, memoryLedger } from "../support/memory-ledger.ts";
import { NOW_MS, OWNER, SIGN_IN } from "../support/plane-parts.ts";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
/** §10's own numbers, written out: the sweep's are held to them. */
const ADMISSION_QUIET_MS = 60_000;
const COMPACT_AFTER_MS = 24 * HOUR;
const MAX_READS = 256;
const MAX_ENDS = 4;
const cli = { owner: OWNER, actor: "cli" };
const hash = (at: number): string => hashOf(`secret ${at}`);

async function rigOf(over: Partial<ChatParts> = {}) {
  const ledger = memoryLedger();
  const clock = { now: NOW_MS };
  const events: SweepEvent[] = [];
  /** Reads of the broker that pages have cost: one for each row, and one to learn that there is no more. */
  const pages: number[] = [];
  const page = memoryHolderPage(ledger.store());
  const parts: ChatParts = {
    ...memoryChatParts(ledger.store(), { now: () => clock.now, slotsPerOwner: 64 }),
    holderPage: async (fromSeq, limit) => {
      const found = await page(fromSeq, limit);
      pages.push(found.rows.length + (found.cursor === undefined ? 1 : 0));
      return found;
    },
    ...over,
  };
  await createAuthority(parts).enrol(cli, SIGN_IN);
  const sweep = createChatSweep(parts, (event) => events.push(event));
  const open = (at: number, asked: Partial<OpenChat> = {}, death?: Death) =>
    openChat({ ...parts, ledger: ledger.store(death) }, { owner: OWNER, holderHash: hash(at), ...asked });
  const row = (at: number) => ChatHolderRow.parse(ledger.row("auth", `chatholder.${OWNER}.${hash(at)}`));
  const swept = async (): Promise<SweepEvent["kind"][]> => {
    const before = events.length;
    await sweep.pass();
    await sweep.idle();
    return events.slice(before).map(({ kind }) => kind);
  };
  return { ledger, clock, events, pages, parts, sweep, open, row, swept };
}

const died = async (run: Promise<unknown>): Promise<void> => {
  await expect(run).rejects.toThrow(Died);
};

describe("W10.30 when", () => {
  test("W10.30 a session is ended at its expiry, to the second, and not before", async () => {
    const { clock, open, row, swept } = await rigOf();
    await open(1, { lifeSeconds: 600 });
    clock.now += 599_999;
    expect(await swept()).toEqual([]);
    expect(row(1).state).toBe("active");
    clock.now += 1;
    expect(await swept()).toEqual(["settled"]);
    expect(row(1)).toMatchObject({ state: "retired", end: "settled" });
    expect(await swept()).toEqual([]);
  });

  test.each([2, 5, 9, 14])(
    "W10.30 an opening that stopped at write %i is left alone for 60 s of quiet, and then fenced",
    async (at) => {
      const { clock, open, row, swept } = await rigOf();
      await died(open(1, {}, { at, when: "after" }));
      clock.now += ADMISSION_QUIET_MS - 1;
      expect(await swept()).toEqual([]);
      expect(row(1).state).not.toBe("retired");
      clock.now += 1;
      expect(await swept()).toEqual(["settled"]);
      expect(row(1)).toMatchObject({ state: "retired", end: "settled" });
    },
  );

  test("W10.30 quiet is no evidence: an opening that goes on while it is looked at is not fenced", async () => {
    const { ledger, clock, parts, open, row, events } = await rigOf();
    await died(open(1, {}, { at: 2, when: "after" }));
    clock.now += ADMISSION_QUIET_MS;
    const page = memoryHolderPage(ledger.store());
    const late: ChatParts = {
      ...parts,
      holderPage: async (fromSeq, limit) => {
        const found = await page(fromSeq, limit);
        await open(1);
        return found;
      },
    };
    const sweep = createChatSweep(late, (event) => events.push(event));
    await sweep.pass();
    await sweep.idle();
    expect(events.map(({ kind }) => kind)).toEqual(["moved"]);
    expect(row(1).state).toBe("active");
  });

  test("W10.30 a retired row is compacted 24 hours after its expiry, once its footprint is removed again", async () => {
    const removed: string[] = [];
    let refuses = true;
    const { ledger, clock, open, row, swept } = await rigOf({
      removeRemains: (_, uid) => {
        removed.push(uid);
        return removed.length > 1 && refuses
          ? Promise.reject(new CotalError(ErrorCode.Unavailable, "the broker is away"))
          : Promise.resolve();
      },
    });
    const { exp, lifecycleUid: uid } = await open(1, { lifeSeconds: 600 });
    clock.now = exp * 1000;
    expect(await swept()).toEqual(["settled"]);
    const session = ledger.row("auth", `chatsession.${uid}`);
    expect(session).toMatchObject({ state: "retired" });
    clock.now = exp * 1000 + COMPACT_AFTER_MS - 1;
    expect(await swept()).toEqual([]);
    clock.now += 1;
    // Not removed again: not compacted.
    expect(await swept()).toEqual(["failed"]);
    expect(ledger.row("auth", `chatsession.${uid}`)).toEqual(session);
    refuses = false;
    expect(await swept()).toEqual(["compacted"]);
    expect(removed).toEqual([uid, uid, uid]);
    expect(ledger.row("auth", `chatsession.${uid}`)).toEqual({
      v: 1,
      state: "compacted",
      lifecycleUid: uid,
      at: clock.now,
    });
    expect(row(1)).toMatchObject({ state: "retired", end: "compacted" });
    expect(await swept()).toEqual([]);
  });

  test("W10.30 what an opening left that was too late to be ended is gone with the compaction", async () => {
    const { ledger, clock, open, row, swept } = await rigOf();
    await died(open(1, {}, { at: 3, when: "after" }));
    clock.now += ADMISSION_QUIET_MS;
    expect(await swept()).toEqual(["settled"]);
    // The opening comes to itself: a slot, and a row that nobody wants any more.
    const { lifecycleUid, holderHash, exp } = row(1);
    ledger.put("auth", chatKey.owner(OWNER), { v: 1, owner: OWNER, slots: [{ holderHash, lifecycleUid }] });
    ledger.put("auth", chatKey.session(lifecycleUid), {
      v: 1,
      state: "pending",
      owner: OWNER,
      actor: row(1).actor,
      lifecycleUid,
      holderHash,
      name: "late",
      allowSubscribe: [],
      allowPublish: [],
      parent: { actor: "cli", lifecycleUid, headRevision: 1, rowDigest: canonicalDigest("x") },
      exp,
      at: 1,
    });
    clock.now = exp * 1000 + COMPACT_AFTER_MS;
    expect(await swept()).toEqual(["compacted"]);
    expect(ledger.row("auth", chatKey.owner(OWNER))).toMatchObject({ slots: [] });
    expect(ledger.row("auth", chatKey.session(lifecycleUid))).toMatchObject({ state: "compacted" });
  });
});

describe("W10.30 what a pass costs", () => {
  const DAY = 24 * HOUR;

  /** So many rows that look as if they were opened, oldest first; nothing else of them exists. */
  async function crowded(count: number, over: Partial<ChatParts> = {}) {
    const rig = await rigOf(over);
    for (let at = 0; at < count; at += 1) {
      rig.ledger.put("auth", `chatholder.${OWNER}.${hash(at)}`, {
        v: 1,
        state: "active",
        owner: OWNER,
        holderHash: hash(at),
        actor: `chat_${hash(at)
          .replaceAll(/[0189]/g, "a")
          .slice(0, 26)}`,
        lifecycleUid: hash(at).slice(0, 26),
        requestDigest: canonicalDigest("x"),
        exp: NOW_MS / 1000 + 600,
        at: NOW_MS,
      });
    }
    return rig;
  }

  test("W10.30 at most 256 reads, however many rows there are; all of them are met, pass by pass", async () => {
    const { pages, parts } = await crowded(600);
    const seen: number[] = [];
    const watched = createChatSweep(
      {
        ...parts,
        holderPage: async (fromSeq, limit) => {
          const page = await parts.holderPage(fromSeq, limit);
          seen.push(...page.rows.map(({ seq }) => seq));
          return page;
        },
      },
      () => undefined,
    );
    for (let pass = 0; pass < 3; pass += 1) await watched.pass();
    expect(new Set(seen).size).toBe(600);
    expect(Math.max(...pages)).toBeLessThanOrEqual(MAX_READS);
    expect(pages).toHaveLength(3);
  });

  test("W10.30 at most 4 ends at once; a pass waits for none of them, and each has its turn", async () => {
    let running = 0;
    let most = 0;
    const waiting: (() => void)[] = [];
    const { clock, sweep, row } = await crowded(11, {
      frontiers: async () => {
        running += 1;
        most = Math.max(most, running);
        await new Promise<void>((resolve) => waiting.push(resolve));
        running -= 1;
        return {};
      },
    });
    const release = async (): Promise<void> => {
      for (const one of waiting.splice(0)) one();
      await sweep.idle();
    };
    clock.now += 600_000;
    // None of them can go on, and the pass is over all the same.
    await sweep.pass();
    await vi.waitUntil(() => running === MAX_ENDS);
    await sweep.pass();
    await sweep.pass();
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(running).toBe(MAX_ENDS);
    await release();
    for (const want of [4, 3]) {
      await sweep.pass();
      await vi.waitUntil(() => running === want);
      await release();
    }
    expect(most).toBe(MAX_ENDS);
    const rows = Array.from({ length: 11 }, (_, at) => row(at));
    expect(rows.map((one) => one.state === "retired" && one.end)).toEqual(Array<string>(11).fill("settled"));
  });

  test("W10.30 one that is under way is not begun again", async () => {
    const begun: (() => void)[] = [];
    const { clock, sweep, row } = await crowded(1, {
      frontiers: async () => {
        await new Promise<void>((resolve) => begun.push(resolve));
        return {};
      },
    });
    clock.now += 600_000;
    for (let pass = 0; pass < 3; pass += 1) {
      await sweep.pass();
      await vi.waitUntil(() => begun.length > 0);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    expect(begun).toHaveLength(1);
    begun[0]?.();
    await sweep.idle();
    expect(row(0)).toMatchObject({ state: "retired", end: "settled" });
  });

  test("W10.30 one that can't be finished yet does not keep the others from their turn", async () => {
    const stuck = `chat_${hash(0)
      .replaceAll(/[0189]/g, "a")
      .slice(0, 26)}`;
    const { clock, swept, row, ledger } = await crowded(9, {
      connectionsOf: ({ actor }) => Promise.resolve(actor === stuck ? { kind: "some", count: 1 } : { kind: "none" }),
    });
    // It has let somebody in.
    const { lifecycleUid, actor } = row(0);
    const head = { owner: OWNER, actor, lifecycleUid, managerInstance: "instance", processEpoch: 1, state: "active" };
    ledger.put("auth", `gate.${lifecycleUid}`, { state: "open", generation: 1 });
    ledger.put("records", `lifecycle.${OWNER}.${actor}`, head);
    clock.now += 600_000;
    const kinds = [...(await swept()), ...(await swept()), ...(await swept())];
    expect(kinds.filter((kind) => kind === "settled")).toHaveLength(8);
    expect(kinds).toContain("waiting");
    expect(row(0)).toMatchObject({ state: "retired", end: "fenced" });
  });

  test("W10.30 rows that are final lie behind: a walk begins at the oldest one that is not", async () => {
    const { clock, pages, swept, open, events } = await crowded(8);
    clock.now += 600_000 + 2 * DAY;
    for (let pass = 0; pass < 12; pass += 1) await swept();
    expect(events.filter(({ kind }) => kind === "compacted")).toHaveLength(8);
    await swept();
    pages.length = 0;
    await swept();
    expect(pages).toEqual([1]);
    await open(100);
    pages.length = 0;
    await swept();
    await swept();
    expect(pages).toEqual([2, 2]);
  });

  test("a page that can't be read, and a row that can't be, are told, and the next pass goes on", async () => {
    let fails = true;
    const { ledger, clock, parts, swept, open, events } = await rigOf();
    ledger.put("auth", `chatholder.${OWNER}.${hash(9)}`, { v: 2 });
    await open(1, { lifeSeconds: 600 });
    ledger.put("auth", `chatholder.${OWNER}.${hash(8)}`, ledger.row("auth", `chatholder.${OWNER}.${hash(1)}`));
    clock.now += 600_000;
    const broken = createChatSweep(
      {
        ...parts,
        holderPage: (fromSeq, limit) =>
          fails ? Promise.reject(new CotalError(ErrorCode.Unavailable, "away")) : parts.holderPage(fromSeq, limit),
      },
      (event) => events.push(event),
    );
    await broken.pass();
    expect(events.map(({ kind }) => kind)).toEqual(["pass-failed"]);
    fails = false;
    await broken.pass();
    await broken.idle();
    expect(events.map(({ kind }) => kind).toSorted()).toEqual(["pass-failed", "settled", "unreadable", "unreadable"]);
    expect(await swept()).toEqual(["unreadable", "unreadable"]);
  });

  test("its passes follow each other on a timer, never two at once, and an end waits for what runs", async () => {
    vi.useFakeTimers();
    try {
      const passes: string[] = [];
      let finish = (): void => undefined;
      const kept = keepSweeping(
        {
          pass: () => {
            passes.push("begun");
            return new Promise((resolve) => {
              finish = resolve;
            });
          },
          idle: () => {
            passes.push("idle");
            return Promise.resolve();
          },
        },
        1000,
      );
      await vi.advanceTimersByTimeAsync(999);
      expect(passes).toEqual([]);
      await vi.advanceTimersByTimeAsync(5000);
      expect(passes).toEqual(["begun"]);
      finish();
      await vi.advanceTimersByTimeAsync(1000);
      expect(passes).toEqual(["begun", "begun"]);
      const stopped = kept.stop();
      await vi.advanceTimersByTimeAsync(5000);
      expect(passes).toEqual(["begun", "begun"]);
      finish();
      await stopped;
      expect(passes).toEqual(["begun", "begun", "idle"]);
      await vi.advanceTimersByTimeAsync(5000);
      expect(passes).toHaveLength(3);
    } finally {
      vi.useRealTimers();
    }
  });
});

test("W10.30 what is due, by state", () => {
  const base = {
    v: 1,
    owner: OWNER,
    holderHash: hash(1),
    actor: `chat_${"a".repeat(26)}`,
    lifecycleUid: "u".repeat(26),
    requestDigest: canonicalDigest("x"),
    exp: 1000,
    at: 500_000,
  } as const;
  const quiet = 500_000 + ADMISSION_QUIET_MS;
  const expired = 1_000_000;
  const due = (part: object, now: number): string => dueOf(ChatHolderRow.parse({ ...base, ...part }), now);
  const retired = (end: string): object => ({ state: "retired", end });
  expect([due({ state: "reserved" }, quiet - 1), due({ state: "reserved" }, quiet)]).toEqual(["later", "end"]);
  expect([due({ state: "provisioning" }, quiet - 1), due({ state: "provisioning" }, quiet)]).toEqual(["later", "end"]);
  expect([due({ state: "active" }, quiet), due({ state: "active" }, expired - 1)]).toEqual(["later", "later"]);
  expect(due({ state: "active" }, expired)).toBe("end");
  expect(due(retired("fenced"), 0)).toBe("end");
  expect([due(retired("settled"), expired), due(retired("settled"), expired + COMPACT_AFTER_MS - 1)]).toEqual([
    "later",
    "later",
  ]);
  expect(due(retired("settled"), expired + COMPACT_AFTER_MS)).toBe("compact");
  expect(due(retired("compacted"), Number.MAX_SAFE_INTEGER)).toBe("never");
});
