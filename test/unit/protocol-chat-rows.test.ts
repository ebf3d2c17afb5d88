/** Rows of chat sessions as closed schemas, and their states walked edge by edge. */
import { describe, expect, test } from "vitest";
import {
  CHAT_FAMILIES,
  CHAT_PARENT,
  ChatEnd,
  ChatHolderRow,
  ChatOwnerRow,
  ChatSessionRow,
  END_EDGES,
  HOLDER_EDGES,
  MAX_CHAT_SLOTS,
  SESSION_EDGES,
  chatKey,
  mayMove,
} from "../../shared/protocol/ledger/chat-rows.ts";

const OWNER = `u_${"a".repeat(26)}`;
const UID = "abcdefghijklmnopqrstuvwxyz";
const HASH = "0f".repeat(32);
const DIGEST = `sha256:${HASH}`;
const ACTOR = `chat_${"b".repeat(26)}`;
const held = {
  v: 1,
  owner: OWNER,
  holderHash: HASH,
  actor: ACTOR,
  lifecycleUid: UID,
  requestDigest: DIGEST,
  exp: 1,
  at: 2,
};
const parent = { actor: CHAT_PARENT, lifecycleUid: UID, headRevision: 7, rowDigest: DIGEST };
const session = {
  v: 1,
  state: "active",
  owner: OWNER,
  actor: ACTOR,
  lifecycleUid: UID,
  holderHash: HASH,
  name: "Somebody (chat)",
  allowSubscribe: ["team.>"],
  allowPublish: [],
  parent,
  exp: 1,
  at: 2,
};

const ROWS = {
  "reserved holder": { schema: ChatHolderRow, row: { ...held, state: "reserved" } },
  "retired holder": { schema: ChatHolderRow, row: { ...held, state: "retired", end: "fenced" } },
  owner: { schema: ChatOwnerRow, row: { v: 1, owner: OWNER, slots: [{ holderHash: HASH, lifecycleUid: UID }] } },
  session: { schema: ChatSessionRow, row: session },
  "compacted session": { schema: ChatSessionRow, row: { v: 1, state: "compacted", lifecycleUid: UID, at: 1 } },
};

describe("W10.27 every row is closed", () => {
  test.each(Object.entries(ROWS))("W10.27 %s", (_, { schema, row }) => {
    expect(schema.safeParse(row).success).toBe(true);
    expect(schema.safeParse({ ...row, extra: 1 }).success).toBe(false);
    for (const field of Object.keys(row)) {
      const without = Object.fromEntries(Object.entries(row).filter(([key]) => key !== field));
      expect({ field, ok: schema.safeParse(without).success }).toEqual({ field, ok: false });
      expect({ field, ok: schema.safeParse({ ...row, [field]: { x: 1 } }).success }).toEqual({ field, ok: false });
    }
  });

  test.each<[string, { safeParse: (value: unknown) => { success: boolean } }, unknown]>([
    ["a live holder with an end", ChatHolderRow, { ...held, state: "active", end: "fenced" }],
    ["a retired holder without one", ChatHolderRow, { ...held, state: "retired" }],
    ["a holder of an actor that is no chat session's", ChatHolderRow, { ...held, state: "active", actor: "alice" }],
    ["a holder of nobody who signs in", ChatHolderRow, { ...held, state: "active", owner: "local" }],
    ["a hash that is none", ChatHolderRow, { ...held, state: "active", holderHash: HASH.toUpperCase() }],
    [
      "a session under another actor than the person's own",
      ChatSessionRow,
      { ...session, parent: { ...parent, actor: "x" } },
    ],
    ["a pin with something more", ChatSessionRow, { ...session, parent: { ...parent, more: 1 } }],
    ["a session with a role", ChatSessionRow, { ...session, role: "x" }],
    ["a session with capabilities", ChatSessionRow, { ...session, capabilities: [] }],
    ["a name of two lines", ChatSessionRow, { ...session, name: "a\nb" }],
    [
      "more slots than there can be",
      ChatOwnerRow,
      { ...ROWS.owner.row, slots: Array.from({ length: MAX_CHAT_SLOTS + 1 }, () => ROWS.owner.row.slots[0]) },
    ],
  ])("W10.27 %s is refused", (_, schema, row) => {
    expect(schema.safeParse(row).success).toBe(false);
  });

  test("its keys are of its families, and no two name one row", () => {
    const keys = [chatKey.holder(held), chatKey.owner(OWNER), chatKey.session(UID)];
    expect(keys).toEqual([`chatholder.${OWNER}.${HASH}`, `chatowner.${OWNER}`, `chatsession.${UID}`]);
    expect(keys.map((key) => key.split(".", 1)[0])).toEqual([...CHAT_FAMILIES]);
  });
});

describe("W10.27 states", () => {
  const pairs = <S>(states: readonly S[]): [S | "absent", S][] =>
    (["absent", ...states] as (S | "absent")[]).flatMap((from) => states.map((to): [S | "absent", S] => [from, to]));

  test("W10.27 a holder goes forward or ends; nothing leaves retired", () => {
    const states = ["reserved", "provisioning", "active", "retired"] as const;
    const lawful = pairs(states).filter(([from, to]) => mayMove(HOLDER_EDGES, from, to));
    expect(lawful.map((edge) => edge.join(" to ")).toSorted()).toEqual([
      "absent to reserved",
      "active to retired",
      "provisioning to active",
      "provisioning to retired",
      "reserved to provisioning",
      "reserved to retired",
    ]);
  });

  test("W10.30 an end is fenced, settled, compacted, in this order and never back", () => {
    const lawful = pairs(ChatEnd.options).filter(([from, to]) => mayMove(END_EDGES, from, to));
    expect(lawful.map((edge) => edge.join(" to "))).toEqual([
      "absent to fenced",
      "fenced to settled",
      "settled to compacted",
    ]);
  });

  test("W10.27 a session is pending, active, retired, compacted; a pending one may end", () => {
    const states = ["pending", "active", "retired", "compacted"] as const;
    const lawful = pairs(states).filter(([from, to]) => mayMove(SESSION_EDGES, from, to));
    expect(lawful.map((edge) => edge.join(" to ")).toSorted()).toEqual([
      "absent to pending",
      "active to retired",
      "pending to active",
      "pending to retired",
      "retired to compacted",
    ]);
  });
});
