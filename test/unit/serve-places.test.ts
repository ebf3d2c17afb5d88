/** What may run at once, and which commands share places. */
import { describe, expect, test } from "vitest";
import { EXAMPLE_HOLDERS } from "../../scripts/generate/example-holders.ts";
import { deliveryLane } from "../../services/delivery/serve-delivery.ts";
import { provisionerLane } from "../../services/provisioner/serve-space.ts";
import { DeliveryCommand, ProvisionerCommand, ReadCommand } from "../../shared/grants/commands.ts";
import { type BuiltProfile, PROFILES, profileRows } from "../../shared/grants/matrix.ts";
import { createPlaces } from "../../shared/serve/places.ts";

describe("places", () => {
  const alone = { owner: "u_one", actor: "a" };
  const callers = (owner: string, count: number) =>
    Array.from({ length: count }, (_, n) => ({ owner, actor: `a${n}` }));

  test("one owner with many callers leaves a quarter to everybody else, and each is given back to whom it was taken", () => {
    const places = createPlaces(16, 4);
    const tries = callers("u_one", 8).flatMap((from) => Array.from({ length: 4 }, () => from));
    const taken = tries.filter((from) => places.take(from));
    expect(taken).toHaveLength(12);
    expect(callers("u_two", 4).filter((from) => places.take(from))).toHaveLength(4);
    expect(places.take({ owner: "u_three", actor: "a0" })).toBe(false);
    for (const from of taken) places.give(from);
    expect(tries.filter((from) => places.take(from))).toHaveLength(12);
  });

  test("one caller alone may have what callers may have, also where there is no more than that", () => {
    const places = createPlaces(4, 4);
    expect(Array.from({ length: 5 }, () => places.take(alone))).toEqual([true, true, true, true, false]);
  });

  test("a refusal takes none", () => {
    const places = createPlaces(8, 1);
    expect([places.take(alone), ...Array.from({ length: 9 }, () => places.take(alone))]).toEqual([
      true,
      ...Array.from({ length: 9 }, () => false),
    ]);
    expect(callers("u_two", 5).filter((from) => places.take(from))).toHaveLength(5);
  });
});

/** Lanes that somebody with this profile can put a request into. */
function lanesOf(profile: BuiltProfile, endpoint: string, names: readonly string[], lane: (name: string) => string) {
  const subjects = profileRows(profile, EXAMPLE_HOLDERS[profile]).map(({ subject }) => subject.split("."));
  const open = names.filter((name) =>
    subjects.some(([, , plane, , of, command]) => plane === "ep" && of === endpoint && command === name),
  );
  return open.map(lane);
}

const UNTRUSTED = (Object.keys(EXAMPLE_HOLDERS) as BuiltProfile[]).filter((name) => !PROFILES[name].trusted);
const DELIVERY = [...Object.values(DeliveryCommand), ...Object.values(ReadCommand)];

describe("PF.04 what ends a connection waits for nobody who may be ended:", () => {
  test.each(UNTRUSTED)("%s asks nothing that shares a place with what the daemons ask", (profile) => {
    const daemons = new Set([DeliveryCommand.EvictPrincipals, DeliveryCommand.AclSwept].map(deliveryLane));
    const lanes = lanesOf(profile, "delivery", DELIVERY, deliveryLane);
    expect(lanes.filter((lane) => daemons.has(lane))).toEqual([]);
    const entering = new Set([provisionerLane(ProvisionerCommand.DaemonEnter)]);
    const asked = lanesOf(profile, "provisioner", Object.values(ProvisionerCommand), provisionerLane);
    expect(asked.filter((lane) => entering.has(lane))).toEqual([]);
  });

  test("an agent asks nothing that shares a place with what the operator asks of the provisioner", () => {
    const agents = lanesOf("agent", "provisioner", Object.values(ProvisionerCommand), provisionerLane);
    expect([agents.length > 0, agents.includes(provisionerLane(ProvisionerCommand.Mint))]).toEqual([true, false]);
  });
});
