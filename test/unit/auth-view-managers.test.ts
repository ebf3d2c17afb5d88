/** The view `manager-caller` (§10): which manager somebody is sent to, and how often a refusal may be asked for. */
import { describe, expect, test } from "vitest";
import type { Answer } from "../../services/auth/edge/refusals.ts";
import { createProbingBudget } from "../../services/auth/edge/probing-budget.ts";
import { createSelectionWindows } from "../../services/auth/edge/selection-windows.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import { CotalError } from "../../shared/protocol/base/errors.ts";
import { Face } from "../../shared/protocol/endpoint/views.ts";
import { endpointKey } from "../../shared/protocol/ledger/endpoint-rows.ts";
import { STRANGER } from "../support/plane-parts.ts";
import { HOST, type Registered, type ViewRig, deniedAs, minted, reasonOf, viewRig } from "../support/view-rig.ts";

const { Loopback, Public } = Face;
const VIEW = "manager-caller";
const id = (letter: string): string => letter.repeat(26);

const person = async (rig: ViewRig, over: object = {}) => ({
  actor: "cli",
  idToken: await rig.token(),
  view: VIEW,
  ...over,
});

async function ready(over: Parameters<typeof viewRig>[0] = {}): Promise<ViewRig> {
  const rig = await viewRig(over);
  await rig.grant("cli", { capabilities: ["spawn"] });
  return rig;
}

/** Whom this person is sent to, or the reason why to nobody. */
async function sent(rig: ViewRig, over: object = {}, face: Face = Loopback): Promise<string> {
  const answer = await rig.ask(await person(rig, over), face);
  if (answer.status !== 200) return reasonOf(answer);
  const { act } = rig.claimsOf(String(Reflect.get(answer.body, "bearer")));
  return act.view === VIEW ? act.managerInstanceId : `another view: ${String(act.view)}`;
}

describe("W10.11 among how many", () => {
  test("none: refused, and nothing is written", async () => {
    const rig = await ready();
    const writes = rig.ledger.writes.length;
    const answer = await rig.ask(await person(rig));
    expect(reasonOf(answer)).toBe("401 no-manager");
    expect(answer.body).toMatchObject({
      code: "failed-precondition",
      next: expect.stringContaining("manager") as string,
    });
    expect(rig.ledger.writes.length).toBe(writes);
  });

  test("one of the host: that one, and the connection reaches it alone", async () => {
    const rig = await ready();
    await rig.manager({ owner: HOST }, id("h"));
    const { bearer, claims } = await rig.bearer(await person(rig));
    expect(claims.act).toMatchObject({ view: VIEW, managerInstanceId: id("h") });
    const jwt = minted(await rig.connect(bearer));
    expect(jwt.profile).toBe(VIEW);
    const { owner, actor, lifecycleUid } = claims.act;
    const asked = ["describe", "spawn", "status", "models", "resolve-cwd", "ps"].map(
      (command) => `cotal.main.ep.inst.manager.${id("h")}.${command}.${owner}.${actor}.${lifecycleUid}.*`,
    );
    expect(jwt.pub.toSorted()).toEqual(asked.toSorted());
  });

  test("two of the host: refused as ambiguous; naming one is not", async () => {
    const rig = await ready();
    for (const letter of ["h", "i"]) await rig.manager({ owner: HOST }, id(letter));
    expect(await sent(rig)).toBe("401 ambiguous-manager");
    expect(await sent(rig, { managerInstanceId: id("i") })).toBe(id("i"));
  });

  test("one's own goes before the host's; two of one's own are ambiguous, whatever the host has", async () => {
    const rig = await ready();
    for (const letter of ["h", "i"]) await rig.manager({ owner: HOST }, id(letter));
    await rig.manager({ owner: rig.owner }, id("o"));
    expect(await sent(rig)).toBe(id("o"));
    await rig.manager({ owner: rig.owner }, id("p"));
    expect(await sent(rig)).toBe("401 ambiguous-manager");
  });

  test("one's own that is not ready is not passed over for the host's", async () => {
    const rig = await ready();
    await rig.manager({ owner: HOST }, id("h"));
    await rig.manager({ owner: rig.owner, gate: { state: "frozen", op: { opId: "x", kind: "takeover" } } }, id("o"));
    expect(await sent(rig)).toBe("401 own-manager-unavailable");
    // One of two that is ready is the one.
    await rig.manager({ owner: rig.owner }, id("p"));
    expect(await sent(rig)).toBe(id("p"));
  });

  test("somebody else's is none of one's own", async () => {
    const rig = await ready();
    await rig.manager({ owner: STRANGER }, id("f"));
    expect(await sent(rig)).toBe("401 no-manager");
    expect(await sent(rig, { managerInstanceId: id("f") })).toBe("401 manager-not-live");
  });
});

const op = { opId: "x", kind: "takeover" };
/** Each way in which an instance is no candidate. */
const UNFIT: readonly (readonly [string, Omit<Registered, "owner">])[] = [
  ["its gate is frozen", { gate: { state: "frozen", op } }],
  ["its gate is retired", { gate: { state: "retired", op } }],
  ["its registration is another revision than its gate's", { gate: { registrationRevision: 1 } }],
  ["its registration names another owner than its gate", { spec: { owner: STRANGER } }],
  ["its registration names another endpoint", { spec: { endpoint: "delivery" } }],
  ["its status is of another epoch than its gate", { status: { epoch: 2 } }],
  ["its gate is of another epoch than its status", { gate: { processEpoch: 9 } }],
];

describe("W10.11 an explicit selector names one that stands, and so does every connect", () => {
  test.each(UNFIT)("%s", async (_, over) => {
    const rig = await ready();
    await rig.manager({ owner: HOST }, id("h"));
    const { bearer } = await rig.bearer(await person(rig));
    await rig.manager({ owner: HOST, ...over }, id("h"));
    expect(await sent(rig, { managerInstanceId: id("h") })).toBe("401 manager-not-live");
    expect(await sent(rig)).toBe("401 no-manager");
    // W10.09: selected before, and asked about again at the connect.
    expect(deniedAs(await rig.connect(bearer))).toMatch(
      /^failed-precondition: that manager instance is not registered/,
    );
    await rig.manager({ owner: HOST }, id("h"));
    expect(deniedAs(await rig.connect(bearer))).toBe("let in");
  });

  test.each([
    ["registration", endpointKey.spec("manager", id("h"))],
    ["status", endpointKey.status("manager", id("h"))],
  ])("it has no %s", async (_, missing) => {
    const rig = await ready({
      around: (store: LedgerStore) => ({
        ...store,
        read: async (bucket, key) => (key === missing ? { kind: "absent" } : store.read(bucket, key)),
      }),
    });
    await rig.manager({ owner: HOST }, id("h"));
    expect(await sent(rig, { managerInstanceId: id("h") })).toBe("401 manager-not-live");
    expect(await sent(rig)).toBe("401 no-manager");
  });

  test("one that nobody has heard of, and a gate under a key that no instance has", async () => {
    const rig = await ready();
    rig.ledger.put("auth", "epgate.manager.short", { state: "open" });
    expect(await sent(rig, { managerInstanceId: id("z") })).toBe("401 manager-not-live");
    expect(await sent(rig)).toBe("401 no-manager");
  });

  test("a gate that has another shape is corruption, and no absence", async () => {
    const rig = await ready();
    await rig.manager({ owner: HOST, gate: { extra: true } }, id("h"));
    expect(await sent(rig)).toMatch(/^(409|500) /);
    expect(await sent(rig, { managerInstanceId: id("h") })).toMatch(/^(409|500) /);
  });

  test("a store that can't be read is unavailable, never `none`; and it spends no window", async () => {
    const broken = { now: true };
    const away = (): Promise<never> => Promise.reject(new CotalError("unavailable", "the broker is away"));
    const rig = await ready({
      around: (store: LedgerStore) => ({
        ...store,
        read: (bucket, key) => (broken.now && key.startsWith("epgate.") ? away() : store.read(bucket, key)),
        keys: (bucket, filter) => (broken.now && filter.startsWith("epgate.") ? away() : store.keys(bucket, filter)),
      }),
    });
    await rig.manager({ owner: HOST }, id("h"));
    for (let n = 0; n < 30; n += 1) {
      expect(await sent(rig, {}, Public)).toBe("503 unavailable");
      expect(await sent(rig, { managerInstanceId: id("h") }, Public)).toBe("503 unavailable");
    }
    broken.now = false;
    expect(await sent(rig, {}, Public)).toBe(id("h"));
  });

  test("an agent is sent as its owner is, and is refused every other selector", async () => {
    const rig = await viewRig();
    const { row, secret } = await rig.agent("robot", { capabilities: [] });
    const body = { actor: "robot", owner: row.owner, secret, view: VIEW };
    await rig.manager({ owner: STRANGER }, id("f"));
    expect(reasonOf(await rig.ask(body, Public))).toBe("401 no-manager");
    await rig.manager({ owner: row.owner }, id("o"));
    const { bearer, claims } = await rig.bearer(body, Public);
    expect(claims.act).toMatchObject({ actor: "robot", managerInstanceId: id("o") });
    // Without `spawn` it may describe, and nothing else.
    expect(minted(await rig.connect(bearer)).pub).toHaveLength(1);
    expect(reasonOf(await rig.ask({ ...body, managerInstanceId: id("f") }, Public))).toBe("401 manager-not-live");
  });
});

describe("W10.12 windows of the public face", () => {
  const window = { refusals: 3, seconds: 100 };
  async function bounded(over: Parameters<typeof viewRig>[0] = {}) {
    const rig = await ready(over);
    const probes: string[] = [];
    const budget = createProbingBudget({ burst: 1, perMinute: 1 }, () => rig.clock.now);
    const ask = rig.askWith({
      windows: createSelectionWindows(window, () => rig.clock.now),
      budget: (answer, peer, known) => {
        if (!known) probes.push(reasonOf(answer));
        return budget(answer, peer, known);
      },
    });
    const unpinned = async (face: Face = Public) => ask(await person(rig), face);
    const pinned = async (managerInstanceId: string, face: Face = Public) =>
      ask(await person(rig, { managerInstanceId }), face);
    return { rig, ask, unpinned, pinned, probes };
  }
  const times = async (count: number, one: () => Promise<Answer>): Promise<string[]> => {
    const said: string[] = [];
    for (let n = 0; n < count; n += 1) said.push(reasonOf(await one()));
    return said;
  };
  const FULL = (of: string) => `429 selection-${of}`;

  test("each refusal tells its own reason until the window is full, then 429 with that class's remedy; nothing is probing", async () => {
    const { unpinned, probes } = await bounded();
    expect(await times(5, unpinned)).toEqual([
      "401 no-manager",
      "401 no-manager",
      "401 no-manager",
      FULL("unpinned"),
      FULL("unpinned"),
    ]);
    const answer = await unpinned();
    expect(answer.headers).toEqual({ "retry-after": "100" });
    expect(answer.body).toMatchObject({
      code: "resource-exhausted",
      next: expect.stringContaining("managerInstanceId") as string,
    });
    expect(probes).toEqual([]);
  });

  test("a full window refuses before selection: also what would succeed, and without a look at the ledger", async () => {
    const reads: string[] = [];
    const { rig, unpinned } = await bounded({
      around: (store: LedgerStore) => ({
        ...store,
        read: (bucket, key) => {
          reads.push(key);
          return store.read(bucket, key);
        },
        keys: (bucket, filter) => {
          reads.push(filter);
          return store.keys(bucket, filter);
        },
      }),
    });
    await times(3, unpinned);
    await rig.manager({ owner: HOST }, id("h"));
    reads.length = 0;
    expect(reasonOf(await unpinned())).toBe(FULL("unpinned"));
    expect(reads.filter((key) => key.startsWith("epgate."))).toEqual([]);
    rig.clock.now += 100_000;
    expect((await unpinned()).status).toBe(200);
  });

  test("the other class stays open, both ways", async () => {
    const { rig, unpinned, pinned } = await bounded();
    await times(4, unpinned);
    await rig.manager({ owner: HOST }, id("h"));
    expect((await pinned(id("h"))).status).toBe(200);
    expect(await times(4, () => pinned(id("z")))).toEqual([
      ...Array.from({ length: 3 }, () => "401 manager-not-live"),
      FULL("pinned"),
    ]);
    expect(reasonOf(await pinned(id("h")))).toBe(FULL("pinned"));
    rig.clock.now += 100_000;
    expect([(await unpinned()).status, (await pinned(id("h"))).status]).toEqual([200, 200]);

    const other = await bounded();
    await other.rig.manager({ owner: HOST }, id("h"));
    await times(4, () => other.pinned(id("z")));
    expect(reasonOf(await other.pinned(id("h")))).toBe(FULL("pinned"));
    expect((await other.unpinned()).status).toBe(200);
  });

  test("the instance that is named is no key: a search through names fills one window", async () => {
    const { pinned } = await bounded();
    const said: string[] = [];
    for (const letter of ["a", "b", "c", "d", "e"]) said.push(reasonOf(await pinned(id(letter))));
    expect(said.slice(3)).toEqual([FULL("pinned"), FULL("pinned")]);
  });

  test("people count by owner, over all of their actors; agents each for itself", async () => {
    const { rig, ask, unpinned } = await bounded();
    await rig.grant("other");
    await times(3, unpinned);
    const other = { ...(await person(rig)), actor: "other" };
    expect(reasonOf(await ask(other, Public))).toBe(FULL("unpinned"));
    const agents = await Promise.all(["robot", "robot_2"].map((actor) => rig.agent(actor)));
    const [first, second] = agents.map(({ row, secret }) => ({
      actor: row.actor,
      owner: row.owner,
      secret,
      view: VIEW,
    }));
    // Their owner's window is full, and theirs are not.
    expect(await times(4, () => ask(first ?? {}, Public))).toEqual([
      ...Array.from({ length: 3 }, () => "401 no-manager"),
      FULL("unpinned"),
    ]);
    expect(reasonOf(await ask(second ?? {}, Public))).toBe("401 no-manager");
    // Somebody else is nobody of all these.
    await rig.grant("cli", { owner: rig.ownerOf("somebody") });
    const somebody = { ...(await person(rig)), idToken: await rig.token({ sub: "somebody" }) };
    expect(reasonOf(await ask(somebody, Public))).toBe("401 no-manager");
  });

  test("the window rolls: it opens as its oldest refusal leaves it, one for one", async () => {
    const { rig, unpinned } = await bounded();
    for (let n = 0; n < 3; n += 1) {
      await unpinned();
      rig.clock.now += 10_000;
    }
    expect((await unpinned()).headers).toEqual({ "retry-after": "70" });
    rig.clock.now += 70_000;
    expect(await times(2, unpinned)).toEqual(["401 no-manager", FULL("unpinned")]);
    rig.clock.now += 10_000;
    expect(await times(2, unpinned)).toEqual(["401 no-manager", FULL("unpinned")]);
  });

  test("more refusals at once than a window holds keep it shut until the newest of them leave it", () => {
    const clock = { now: 0 };
    const windows = createSelectionWindows(window, () => clock.now);
    for (let n = 0; n < 5; n += 1) {
      windows.refused("somebody", "unpinned");
      clock.now += 1000;
    }
    // The third last came after two seconds.
    expect(windows.wait("somebody", "unpinned")).toBe(97);
    expect([windows.wait("somebody", "pinned"), windows.wait("another", "unpinned")]).toEqual([0, 0]);
  });

  test("refusals of a proof, of a scope and of another view count in no window", async () => {
    const { rig, ask, unpinned, probes } = await bounded();
    await ask({ actor: "cli", idToken: "junk", view: VIEW }, Public);
    expect(probes).toEqual(["401 proof-malformed"]);
    for (let n = 0; n < 10; n += 1) await ask({ ...(await person(rig)), view: "channel-writer" }, Public);
    await rig.manager({ owner: HOST }, id("h"));
    expect((await unpinned()).status).toBe(200);
  });

  test("W10.13 on the loopback face a refusal spends nothing: a hundred times the same reason, and no window is met", async () => {
    const { rig, unpinned, pinned, probes } = await bounded();
    const again = await times(100, () => unpinned(Loopback));
    expect(new Set(again)).toEqual(new Set(["401 no-manager"]));
    for (const letter of ["h", "i"]) await rig.manager({ owner: HOST }, id(letter));
    expect(new Set(await times(100, () => unpinned(Loopback)))).toEqual(new Set(["401 ambiguous-manager"]));
    expect(new Set(await times(20, () => pinned(id("z"), Loopback)))).toEqual(new Set(["401 manager-not-live"]));
    expect(probes).toEqual([]);
    // And none of it was counted on the public face either.
    expect(reasonOf(await unpinned())).toBe("401 ambiguous-manager");
  });
});

describe("W10.14 the host's own choice for people who name no manager", () => {
  const local = (instanceId: string): Parameters<typeof viewRig>[0] => ({ plane: { localManager: instanceId } });

  test("is taken without looking at any other, ambiguous or not", async () => {
    const rig = await ready(local(id("l")));
    for (const letter of ["h", "i", "l"]) await rig.manager({ owner: HOST }, id(letter));
    await rig.manager({ owner: rig.owner }, id("o"));
    expect(await sent(rig)).toBe(id("l"));
  });

  test.each<readonly [string, Omit<Registered, "owner"> | undefined]>([["it is absent", undefined], ...UNFIT])(
    "refuses, and puts nobody in its place: %s",
    async (_, over) => {
      const rig = await ready(local(id("l")));
      await rig.manager({ owner: HOST }, id("h"));
      await rig.manager({ owner: rig.owner }, id("o"));
      if (over !== undefined) await rig.manager({ owner: HOST, ...over }, id("l"));
      expect(await sent(rig)).toBe("401 manager-not-live");
    },
  );

  test("refuses as unavailable where it can't be read, without reading any other", async () => {
    const asked: string[] = [];
    const away = (): Promise<never> => Promise.reject(new CotalError("unavailable", "the broker is away"));
    const rig = await ready({
      ...local(id("l")),
      around: (store: LedgerStore) => ({
        ...store,
        read: (bucket, key) => {
          if (key.startsWith("epgate.") || key.startsWith("svc.")) asked.push(key);
          return key.startsWith("epgate.") ? away() : store.read(bucket, key);
        },
        keys: (bucket, filter) => {
          if (filter.startsWith("epgate.")) asked.push(filter);
          return store.keys(bucket, filter);
        },
      }),
    });
    expect(await sent(rig)).toBe("503 unavailable");
    expect(asked.filter((key) => !key.includes(id("l")))).toEqual([]);
    expect(asked).not.toEqual([]);
  });

  test("one of somebody else's is refused as any other would be", async () => {
    const rig = await ready(local(id("f")));
    await rig.manager({ owner: STRANGER }, id("f"));
    expect(await sent(rig)).toBe("401 manager-not-live");
  });

  test("no request turns it on, and none turns it off", async () => {
    const rig = await ready();
    for (const letter of ["h", "i"]) await rig.manager({ owner: HOST }, id(letter));
    for (const field of ["localManager", "local", "hostManager", "managerInstance"]) {
      expect(await sent(rig, { [field]: id("h") })).toBe("400 unknown-field");
      expect(await sent(rig, { [field]: true })).toBe("400 unknown-field");
    }
    expect(await sent(rig)).toBe("401 ambiguous-manager");
  });

  test("a request that names one is served as it names it, and an agent's is not touched", async () => {
    const rig = await ready(local(id("l")));
    for (const letter of ["h", "l"]) await rig.manager({ owner: HOST }, id(letter));
    expect(await sent(rig, { managerInstanceId: id("h") })).toBe(id("h"));
    expect(await sent(rig, { managerInstanceId: id("z") })).toBe("401 manager-not-live");
    const { row, secret } = await rig.agent("robot");
    const body = { actor: "robot", owner: row.owner, secret, view: VIEW };
    expect(reasonOf(await rig.ask(body))).toBe("401 ambiguous-manager");
    expect((await rig.bearer({ ...body, managerInstanceId: id("h") })).claims.act).toMatchObject({
      managerInstanceId: id("h"),
    });
  });
});
