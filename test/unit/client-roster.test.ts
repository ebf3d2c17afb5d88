/** The roster as a reader: only a completed read says who is absent. */
import { describe, expect, test } from "vitest";
import fc from "fast-check";
import { createEvents } from "../../shared/client/events.ts";
import type { Reads } from "../../shared/client/reads.ts";
import { readRoster, resolveWho } from "../../shared/client/roster.ts";
import { CotalError, ErrorCode } from "../../shared/protocol/base/errors.ts";
import { nearMiss } from "../support/near-miss.ts";

const NOW = 1_000_000;
const record = (id: string, change: object = {}, card: object = {}) => ({
  key: id,
  value: { card: { id, name: id.split(".")[1], kind: "agent", ...card }, status: "idle", ts: NOW, ...change },
});

type Page = { readonly records: readonly { key: string; value: unknown }[]; readonly cursor?: number };

function reads(pages: readonly (Page | CotalError)[]): { reads: Reads; asked: number[] } {
  const asked: number[] = [];
  const roster = ({ cursor }: { cursor?: number | undefined }) => {
    const page = pages[asked.length];
    asked.push(cursor ?? 0);
    if (page === undefined || page instanceof CotalError) return Promise.reject(page ?? new Error("no such page"));
    return Promise.resolve({ ...page, records: [...page.records] });
  };
  return { reads: { roster } as unknown as Reads, asked };
}

const quiet = () => createEvents(undefined);

describe("on demand", () => {
  test("W6.14: every page is read, and a record older than the window reads offline", async () => {
    const { reads: source, asked } = reads([
      { records: [record("local.a"), record("local.b", { ts: NOW - 6001 })], cursor: 7 },
      { records: [record("local.c", { status: "working" })] },
    ]);
    const roster = await readRoster(source, quiet(), () => NOW);
    expect(asked).toEqual([0, 7]);
    expect(roster.map(({ id, status }) => [id, status])).toEqual([
      ["local.a", "idle"],
      ["local.b", "offline"],
      ["local.c", "working"],
    ]);
  });

  test("W6.15: a read that breaks off is an error, and nobody is called absent", async () => {
    const away = new CotalError(ErrorCode.Unavailable, "gone");
    const broken = () =>
      readRoster(reads([{ records: [record("local.a")], cursor: 7 }, away]).reads, quiet(), () => NOW);
    await expect(broken()).rejects.toMatchObject({ code: ErrorCode.Unavailable });
    await expect(resolveWho("bob", broken)).rejects.toMatchObject({ code: ErrorCode.Unavailable });
  });

  test("a roster that does not advance is an error, not a loop", async () => {
    const page = { records: [record("local.a")], cursor: 7 };
    await expect(readRoster(reads([page, page]).reads, quiet(), () => NOW)).rejects.toMatchObject({ code: "internal" });
  });

  test("W6.13: a record that breaks a rule is dropped and told, and the others stand", async () => {
    const bad = [
      { key: "local.x", value: record("local.y").value },
      record("local.n", {}, { name: { toString: null } }),
      record("local.s", { status: "asleep" }),
      record("local.t", { ts: "nope" }),
      record("local.u", { ts: undefined }),
      record("local.i", { ts: Number.POSITIVE_INFINITY }),
      record("local.r", {}, { role: 7 }),
      record("local.v", { activity: { toString: null, valueOf: null } }),
      record("local.w", { attention: [] }),
      record("local.c", { condition: null }),
      record("local.d", { condition: "auth" }),
      record("local.e", { condition: {} }),
      { key: "local.z", value: null },
    ];
    const told: unknown[] = [];
    const events = createEvents((event) => told.push(event));
    const roster = await readRoster(
      reads([{ records: [record("local.a"), ...bad, record("local.b")] }]).reads,
      events,
      () => NOW,
    );
    expect(roster.map(({ id }) => id)).toEqual(["local.a", "local.b"]);
    expect(told).toHaveLength(bad.length);
    expect(events.stats(0).rejected).toEqual({ presence: bad.length });
  });

  test("no record, however wrong, costs the roster of the others or can't be printed", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(nearMiss([record("local.q").value]), { maxLength: 8 }), async (values) => {
        const records = [record("local.a"), ...values.map((value) => ({ key: "local.q", value }))];
        const roster = await readRoster(reads([{ records }]).reads, quiet(), () => NOW);
        expect(roster[0]?.id).toBe("local.a");
        expect(
          roster.map((entry) => `${entry.name} ${entry.status} ${entry.activity ?? ""} ${entry.role ?? ""}`),
        ).toBeDefined();
      }),
    );
  });
});

describe("WHO", () => {
  const roster = async () =>
    readRoster(
      reads([
        {
          records: [
            record("local.a", {}, { name: "Ann" }),
            record("local.b1", {}, { name: "Bob" }),
            record("local.b2", {}, { name: "Bob" }),
            record("local.b3", { ts: 1 }, { name: "Bob" }),
            record("local.old", { ts: 1 }, { name: "Old" }),
          ],
        },
      ]).reads,
      quiet(),
      () => NOW,
    );

  test("owner.actor needs no roster, a live name resolves, a single one that is away as well", async () => {
    expect(await resolveWho("local.zed", () => Promise.reject(new Error("not asked")))).toEqual({
      owner: "local",
      actor: "zed",
    });
    expect(await resolveWho("Ann", roster)).toEqual({ owner: "local", actor: "a" });
    expect(await resolveWho("Old", roster)).toEqual({ owner: "local", actor: "old" });
  });

  test("two live peers of a name are refused, both listed; nobody of it is not found", async () => {
    await expect(resolveWho("Bob", roster)).rejects.toMatchObject({
      code: ErrorCode.Conflict,
      details: [{ id: "local.b1" }, { id: "local.b2" }],
    });
    await expect(resolveWho("Eve", roster)).rejects.toMatchObject({
      code: ErrorCode.NotFound,
      outcome: "not-executed",
    });
  });

  test("an actor of whoever asks comes before strangers that call themselves the same, here or not", async () => {
    const records = [
      record("local.mine", { ts: 1 }, { name: "Bob" }),
      record(`${"u_"}${"a".repeat(26)}.bob`, {}, { name: "Bob" }),
    ];
    const mixed = async () => readRoster(reads([{ records }]).reads, quiet(), () => NOW);
    expect(await resolveWho("Bob", mixed, "local")).toEqual({ owner: "local", actor: "mine" });
    expect(await resolveWho("Bob", mixed, "nobody")).toMatchObject({ actor: "bob" });
    await expect(resolveWho("Bob", roster, "local")).rejects.toMatchObject({ code: ErrorCode.Conflict });
  });

  test("a label in place of an owner token names nobody, and it is said where the token is found", async () => {
    await expect(resolveWho("acme.scout", roster)).rejects.toMatchObject({
      code: ErrorCode.NotFound,
      outcome: "not-executed",
      next: expect.stringContaining("owner token") as unknown,
    });
  });
});
