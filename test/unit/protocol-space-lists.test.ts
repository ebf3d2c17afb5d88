/** The settings of a space (H54), and an agent's three channel lists (§9). */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { channelLists } from "../../shared/protocol/chat/acl-lists.ts";
import { contains } from "../../shared/protocol/base/channels.ts";
import { DEFAULT_LIMITS, SpaceSettings } from "../../shared/protocol/chat/space-settings.ts";
import { patterns } from "../support/arbitraries.ts";
import { refusal } from "../support/refusal.ts";

const settings = {
  v: 1,
  space: "main",
  auth: "static",
  reads: "mediated",
  replicas: 1,
  groups: 4,
  daemons: { provisioner: "u_aaaaaaaaaaaaaaaaaaaaaaaaaa.provisioner" },
  limits: DEFAULT_LIMITS,
};

describe("the settings of a space are a closed row", () => {
  test("as the provisioner writes it", () => {
    expect(SpaceSettings.safeParse(settings).success).toBe(true);
  });

  test.each<[string, object]>([
    ["an unknown field", { extra: 1 }],
    ["another version", { v: 2 }],
    ["another mode", { auth: "none" }],
    ["direct reads", { reads: "direct" }],
    ["two replicas", { replicas: 2 }],
    ["no group", { groups: 0 }],
    ["65 groups", { groups: 65 }],
    ["no limits", { limits: undefined }],
    ["limits with an unknown field", { limits: { agent: { subs: 1, payload: 1, conn: 1 } } }],
    ["a negative limit", { limits: { agent: { subs: -2, payload: 1 } } }],
    ["a daemon that is no text", { daemons: { x: 1 } }],
  ])("%s is refused", (_what, change) => {
    expect(SpaceSettings.safeParse({ ...settings, ...change }).success).toBe(false);
  });
});

describe("W9.04 the three lists", () => {
  test("the read list defaults to what is joined, the post list to nothing", () => {
    expect(channelLists({ subscribe: ["#general", "team.>"] })).toEqual({
      subscribe: ["general", "team.>"],
      allowSubscribe: ["general", "team.>"],
      allowPublish: [],
    });
    expect(channelLists({})).toEqual({ subscribe: [], allowSubscribe: [], allowPublish: [] });
  });

  test("entries are sanitised once, and the same entry counts once", () => {
    expect(channelLists({ allowPublish: ["a b", "a_b", "#a_b"] }).allowPublish).toEqual(["a_b"]);
  });

  test.each([
    [["team.>"], ["team.*"]],
    [["team"], ["team.>"]],
    [["team.>"], ["team.a.>", "team.b.>"]],
    [["perm.>"], ["perm.*"]],
    [[">"], ["*"]],
    [["a"], []],
  ])("joining %j with the read list %j is refused, and the entry is named", (subscribe, allowSubscribe) => {
    const { code, message } = refusal(() => channelLists({ subscribe, allowSubscribe }));
    expect(code).toBe("bad-request");
    expect(message).toContain(subscribe[0]);
  });

  test("what is accepted lies in one entry each; what is refused has an entry that does not", () => {
    const list = fc.array(patterns, { maxLength: 4 });
    fc.assert(
      fc.property(list, list, (subscribe, allowSubscribe) => {
        const inside = subscribe.every((one) => allowSubscribe.some((entry) => contains(entry, one)));
        const call = () => channelLists({ subscribe, allowSubscribe });
        const accepted = inside ? call().subscribe.length >= 0 : refusal(call).code !== "bad-request";
        expect(accepted).toBe(inside);
      }),
    );
  });
});
