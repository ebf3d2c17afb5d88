/** Who is enrolled by a restore, in which group, and what of the ledger comes back (H35, H47): from written files alone. */
import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { type AuthorityOptions, endAll, writeActors, writeLists } from "../../shared/backup/authority.ts";
import { type Manifest, parseManifest, sealed } from "../../shared/backup/format.ts";
import { readLines, writeLines } from "../../shared/backup/lines.ts";
import { Line } from "../../shared/backup/format.ts";
import { type Plan, planOf } from "../../shared/backup/plan.ts";
import { adoptRestored, restoredOp } from "../../shared/ledger/restored.ts";
import { rootCredentialId } from "../../shared/ledger/root.ts";
import { groupOf } from "../../shared/protocol/ledger/member-rows.ts";
import type { AclRow } from "../../shared/protocol/ledger/rows.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { memoryLedger } from "../support/memory-ledger.ts";
import { failure } from "../support/refusal.ts";

const SYSTEM = `u_${"s".repeat(26)}`;
const OWNER = `u_${"o".repeat(26)}`;
const uidOf = (letter: string): string => letter.repeat(26);
const KEY = newKey("user").publicKey;
let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "cotal-plan-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

type Person = {
  readonly actor: string;
  readonly owner?: string;
  readonly head?: "active" | "retired";
  readonly gate?: "open" | "frozen";
  readonly durables?: readonly string[];
  readonly grant?: "active" | "revoked";
  readonly list?: boolean;
};

const list = (more: Partial<AclRow> = {}): AclRow => ({
  v: 1,
  name: "someone",
  allowSubscribe: ["general"],
  durables: true,
  credential: KEY,
  at: 1,
  ...more,
});

function manifest(auth: "static" | "user", groups = 1): Manifest {
  const store = { maxAge: 0, maxPerSubject: -1, lastSeq: 9, messages: 0 };
  return sealed({
    v: 1,
    space: "main",
    auth,
    replicas: 1,
    groups,
    began: 1,
    ended: 2,
    brokerVersion: "2.14.0",
    stores: { chat: store, dm: store, task: store, dlv: store },
    files: [],
  });
}

/** Writes the files of a space with these people; each has the UID of the first letter of its actor. */
async function written(people: readonly Person[]): Promise<void> {
  let seq = 0;
  const lines = { records: [] as Line[], auth: [] as Line[], acl: [] as Line[] };
  const consumers: object[] = [];
  const add = (part: keyof typeof lines, key: string, value: object): void => {
    seq += 1;
    const data = Buffer.from(JSON.stringify(value)).toString("base64");
    lines[part].push({ seq, at: 1, subject: `$KV.cotal_${part}_main.${key}`, data });
  };
  for (const {
    actor,
    owner = OWNER,
    head = "active",
    gate = "open",
    durables = ["dm", "dlv"],
    grant,
    list: has = true,
  } of people) {
    const uid = uidOf(actor.at(0) ?? "x");
    const op = { opId: "op", kind: "retirement" };
    add("records", `uid.${uid}`, { v: 1, lifecycleUid: uid, owner, actor, opId: "op", at: 1 });
    add("records", `lifecycle.${owner}.${actor}`, {
      owner,
      actor,
      lifecycleUid: uid,
      managerInstance: "m",
      processEpoch: 1,
      state: head,
    });
    add(
      "auth",
      `gate.${uid}`,
      gate === "open" ? { state: "open", generation: 1 } : { state: "frozen", generation: 1, op },
    );
    if (has) add("acl", `${owner}.${actor}.${uid}`, list({ name: actor }));
    for (const kind of durables) {
      consumers.push({ part: kind, name: `${kind}_${owner}-${actor}-${uid}`, next: kind === "dm" ? 4 : 7, owed: 0 });
    }
    if (grant !== undefined) {
      const row = { v: 1, owner, actor, lifecycleUid: uid, state: grant, kind: "managed", name: actor };
      add("auth", `actor.${owner}.${actor}`, {
        ...row,
        allowSubscribe: [],
        allowPublish: [],
        capabilities: [],
        parent: { owner: OWNER, actor: people[0]?.actor ?? "", lifecycleUid: uidOf(people[0]?.actor.at(0) ?? "") },
        secretDigest: "0".repeat(64),
        at: 1,
      });
    }
  }
  const each = async function* each(all: readonly object[]) {
    yield* all;
  };
  for (const part of ["records", "auth", "acl"] as const) await writeLines(folder, `${part}.jsonl`, each(lines[part]));
  await writeLines(folder, "consumers.jsonl", each(consumers));
}

const plan = (auth: "static" | "user", groups = 1): Promise<Plan> =>
  planOf(folder, manifest(auth, groups), SYSTEM, randomBytes);
const names = ({ enrolled }: Plan): string[] => [...enrolled.values()].map(({ principal }) => principal.actor);

describe("A.07 whom a restore enrols", () => {
  test("who had an inbox that worked, under a fresh UID, where its durables had come to", async () => {
    await written([{ actor: "alice" }]);
    const [one] = (await plan("static")).enrolled.values();
    expect(one).toMatchObject({
      principal: { owner: OWNER, actor: "alice" },
      before: uidOf("a"),
      dmNext: 4,
      dlvNext: 7,
    });
    expect(one?.uid).not.toBe(uidOf("a"));
  });

  const nobody: readonly [string, Person][] = [
    ["has ended", { actor: "alice", head: "retired" }],
    ["was being ended", { actor: "alice", gate: "frozen" }],
    ["is a daemon", { actor: "alice", owner: SYSTEM }],
    ["is a chat session", { actor: `chat_${"c".repeat(26)}` }],
    ["has no read list", { actor: "alice", list: false }],
    ["has no inbox", { actor: "alice", durables: ["dlv"] }],
    ["has no backstop", { actor: "alice", durables: ["dm"] }],
  ];
  test.each(nobody)("nobody who %s", async (_, person) => {
    await written([person, { actor: "bob" }]);
    expect(names(await plan("static"))).toEqual(["bob"]);
  });

  test("where people sign in, nobody without a grant", async () => {
    await written([{ actor: "alice", grant: "active" }, { actor: "bob", grant: "revoked" }, { actor: "carol" }]);
    expect(names(await plan("user"))).toEqual(["alice"]);
  });

  test("each in the member group that it was in", async () => {
    const letters = "abcdefghijklmnopqrstuvwxyz".split("");
    await written(letters.map((letter) => ({ actor: letter })));
    const found = [...(await plan("static", 8)).enrolled];
    expect(found).toHaveLength(26);
    const groups = found.map(([former, { principal, uid }]) => [
      groupOf(former, 8),
      groupOf(`${principal.owner}.${principal.actor}.${uid}`, 8),
    ]);
    expect(groups.filter(([was, is]) => was !== is)).toEqual([]);
    expect(new Set(groups.map(([was]) => was)).size).toBeGreaterThan(1);
  });
});

describe("A.07 the ledger after a restore", () => {
  test("every UID is reserved and every gate retired, heads end, and a revoked grant stays one", async () => {
    await written([
      { actor: "alice", grant: "active" },
      { actor: "bob", grant: "revoked" },
    ]);
    const memory = memoryLedger();
    const options = {
      ledger: memory.store(),
      folder,
      manifest: manifest("user"),
      plan: await plan("user"),
      random: randomBytes,
      now: () => 5,
    };
    const parts = options as unknown as AuthorityOptions;
    expect(await endAll(parts)).toBe(2);
    for (const letter of ["a", "b"]) {
      expect(memory.row("records", `uid.${uidOf(letter)}`)).toMatchObject({ lifecycleUid: uidOf(letter) });
      expect(memory.row("auth", `gate.${uidOf(letter)}`)).toMatchObject({ state: "retired" });
    }
    expect(memory.row("records", `lifecycle.${OWNER}.alice`)).toMatchObject({ state: "retired" });
    expect(memory.row("records", `frontier.${uidOf("a")}`)).toMatchObject({ streams: { DM_main: 9, DLV_main: 9 } });
    await writeActors(parts);
    const fresh = [...parts.plan.enrolled.values()][0]?.uid;
    const alice = memory.row("auth", `actor.${OWNER}.alice`);
    expect(alice).toMatchObject({ state: "active", lifecycleUid: fresh, parent: { lifecycleUid: fresh } });
    expect(alice).not.toHaveProperty("secretDigest");
    expect(memory.row("auth", `actor.${OWNER}.bob`)).toMatchObject({ state: "revoked", lifecycleUid: uidOf("b") });
    const [written_] = await writeLists(parts);
    expect(memory.row("acl", `${OWNER}.alice.${fresh}`)).toMatchObject({
      credential: rootCredentialId(fresh ?? "", 1),
    });
    expect(written_?.after).toBeGreaterThan(0);
  });
});

describe("A.07 a restored name of a space with static credentials", () => {
  const p = { owner: OWNER, actor: "alice" };
  const uid = uidOf("n");
  function restored() {
    const memory = memoryLedger();
    const head = { ...p, lifecycleUid: uid, managerInstance: "restore", processEpoch: 1, state: "active" };
    memory.put("records", `lifecycle.${OWNER}.alice`, head);
    memory.put("auth", `stage.${restoredOp("static", uid)}.activation`, {
      v: 1,
      opId: restoredOp("static", uid),
      ...p,
      lifecycleUid: uid,
      inboxNonce: "n".repeat(26),
      requestDigest: "d",
    });
    memory.put("acl", `${OWNER}.alice.${uid}`, list({ credential: rootCredentialId(uid, 1) }));
    return memory;
  }

  test("goes to the first mint, and to a retry of that same mint", async () => {
    const ledger = restored().store();
    const mine = list({ allowSubscribe: ["general", "team"] });
    expect(await adoptRestored(ledger, p, mine)).toEqual({ uid, inboxNonce: "n".repeat(26) });
    expect(await adoptRestored(ledger, p, { ...mine, at: 99 })).toEqual({ uid, inboxNonce: "n".repeat(26) });
    expect(await failure(adoptRestored(ledger, p, list({ allowSubscribe: [">"] })))).toMatchObject({
      code: "conflict",
    });
    expect(await adoptRestored(ledger, p, list({ credential: newKey("user").publicKey }))).toBeUndefined();
  });

  test("of two mints at once one has it", async () => {
    const ledger = restored().store();
    const outcomes = await Promise.allSettled(
      [newKey("user"), newKey("user")].map(({ publicKey }) =>
        adoptRestored(ledger, p, list({ credential: publicKey })),
      ),
    );
    expect(outcomes.filter(({ status }) => status === "fulfilled")).toHaveLength(1);
  });

  test("is no observer's: its inbox would be lost", async () => {
    expect(await failure(adoptRestored(restored().store(), p, list({ durables: false })))).toMatchObject({
      code: "failed-precondition",
    });
  });
});

describe("A.07 files of a backup", () => {
  test("a line that is none is refused, and so is a manifest of another version", async () => {
    await writeLines(
      folder,
      "chat.jsonl",
      (async function* one() {
        yield { seq: -1 };
      })(),
    );
    const reading = async (): Promise<void> => {
      for await (const _ of readLines(folder, "chat.jsonl", Line));
    };
    expect(await failure(reading())).toMatchObject({ code: "failed-precondition" });
    const text = JSON.stringify(manifest("static"));
    expect(parseManifest(text)).toEqual(manifest("static"));
    expect(() => parseManifest(text.replace('"v":1', '"v":2'))).toThrow(/not a manifest of this version/);
    expect(() => parseManifest("{")).toThrow(/not a manifest/);
  });
});
