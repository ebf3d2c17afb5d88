/** What a look proves, and what the oracle makes of it, against answers that a broker may give. */
import { describe, expect, test } from "vitest";
import type { Answered, Gather } from "../../shared/broker/gather.ts";
import { type Look, type LookParts, type Seen, look, shareLooks } from "../../services/delivery/oracle/look.ts";
import { type Oracle, createOracle, kickOver } from "../../services/delivery/oracle/oracle.ts";
import { isMissed, serversOf } from "../../shared/broker/servers.ts";
import { SETTLE_MS } from "../../shared/broker/still-connected.ts";
import { MOST_LOGIN_SECONDS } from "../../shared/grants/gates.ts";
import { type Principal, dotForm } from "../../shared/protocol/base/principals.ts";
import { failure } from "../support/refusal.ts";
import { OWNER } from "../support/plane-parts.ts";

const alice = { owner: OWNER, actor: "alice" };
const bob = { owner: OWNER, actor: "bob" };
const me = { owner: OWNER, actor: "delivery" };

const answer = (value: unknown): Answered => ({ json: <T>() => value as T });

type Stat = {
  readonly id: string;
  readonly cluster?: string;
  readonly active?: number;
  readonly meta?: number;
  readonly gateways?: readonly unknown[];
};

const stat = ({ id, cluster, active, meta, gateways }: Stat) => ({
  server: { id, name: `name-${id}`, ...(cluster === undefined ? {} : { cluster }) },
  statsz: {
    ...(active === undefined ? {} : { active_servers: active }),
    ...(gateways === undefined ? {} : { gateways }),
    jetstream: meta === undefined ? {} : { meta: { cluster_size: meta } },
  },
});

const alone: Stat = { id: "N1", active: 1 };
const three = (id: string): Stat => ({ id, cluster: "c", active: 3, meta: 3 });

type Connected = { readonly cid: number; readonly name?: string };
type Place = Readonly<Record<string, Readonly<Record<string, readonly Connected[]>>>>;

/** Servers with what each lists of each account; `over` may change what is said at any time. */
function broker(stats: () => readonly Stat[], places: () => Place) {
  const asked: string[] = [];
  const gather: Gather = (subject, body, isEnough) => {
    asked.push(subject);
    const answers: Answered[] = [];
    for (const one of replies(subject, body, stats(), places())) {
      answers.push(answer(one));
      if (isEnough(answers)) break;
    }
    return Promise.resolve(answers);
  };
  return { gather, asked };
}

function replies(subject: string, body: string, stats: readonly Stat[], places: Place): unknown[] {
  if (subject.endsWith("STATSZ")) return stats.map(stat);
  const account = subject.split(".")[3] ?? "";
  const {
    server_name: wanted,
    offset,
    limit,
  } = JSON.parse(body) as {
    server_name: string;
    offset: number;
    limit: number;
  };
  return stats
    .filter(({ id }) => `name-${id}` === wanted && places[id] !== undefined)
    .map(({ id }) => {
      const all = places[id]?.[account] ?? [];
      const connections = all
        .slice(offset, offset + limit)
        .map(({ cid, name }) => ({ cid, ...(name === undefined ? {} : { authorized_user: name }) }));
      return { server: { id, name: `name-${id}` }, data: { total: all.length, connections } };
    });
}

const self: Connected = { cid: 7, name: dotForm(me) };
const parts = (gather: Gather, over: Partial<LookParts> = {}): LookParts => ({
  gather,
  accounts: ["FRONT", "STORE"],
  self: () => ({ server: "N1", cid: 7 }),
  ...over,
});
const wanted = (...principals: readonly Principal[]) => new Set(principals.map(dotForm));

describe("W131.10 PF.04 which servers there are", () => {
  const gapOf = async (...stats: readonly Stat[]) =>
    (
      await serversOf(
        broker(
          () => stats,
          () => ({}),
        ).gather,
      )
    ).gap;

  test("one that knows itself alone, and three that know three and whose group has three", async () => {
    expect(await gapOf(alone)).toBeUndefined();
    expect(await gapOf(three("N1"), three("N2"), three("N3"))).toBeUndefined();
  });

  test.each<[string, readonly Stat[], RegExp]>([
    ["nobody answers", [], /no server/],
    ["a second one is known and silent", [{ id: "N1", active: 2 }], /2 servers are known .* 1 answered/],
    ["one of three is silent", [three("N1"), three("N2")], /3 servers are known .* 2 answered/],
    ["one says nothing of the others", [{ id: "N1" }], /does not say how many/],
    [
      "one that was there is forgotten, but not by the group",
      [
        { ...three("N1"), active: 2 },
        { ...three("N2"), active: 2 },
      ],
      /group of the cluster has 3 servers, and 2 answered/,
    ],
    ["a server of a cluster is in no group", [{ id: "N1", cluster: "c", active: 1 }], /does not belong/],
    ["there are gateways", [{ ...alone, gateways: [{ name: "east" }] }], /gateways/],
  ])("%s: nothing is proved", async (_, stats, why) => {
    expect(await gapOf(...stats)).toMatch(why);
  });

  test("a server of a cluster that is in no group would not be missed; one that does not answer says nothing", async () => {
    const missed = (id: string, ...stats: readonly Stat[]) =>
      isMissed(
        broker(
          () => stats,
          () => ({}),
        ).gather,
        id,
      );
    expect(await missed("N1", alone)).toBe(true);
    expect(await missed("N2", three("N1"), three("N2"))).toBe(true);
    expect(await missed("N4", three("N1"), { id: "N4", cluster: "c", active: 4 })).toBe(false);
    expect(await missed("N4", three("N1"), three("N2"))).toBeUndefined();
  });

  test("an answer that can't be read proves nothing", async () => {
    const gather: Gather = () => Promise.resolve([answer("?"), answer(stat(alone))]);
    expect((await serversOf(gather)).gap).toMatch(/can't be read/);
  });
});

describe("W131.10 PF.04 one look", () => {
  const complete: Place = {
    N1: {
      FRONT: [self, { cid: 8, name: dotForm(alice) }, { cid: 9, name: dotForm(bob) }],
      STORE: [{ cid: 3, name: "x" }],
    },
  };

  test("it finds who was asked for, in each account, and keeps nobody else", async () => {
    const place: Place = { N1: { ...complete["N1"], STORE: [{ cid: 3, name: dotForm(alice) }] } };
    const seen = await look(
      parts(
        broker(
          () => [alone],
          () => place,
        ).gather,
      ),
      wanted(alice),
    );
    expect(seen.gap).toBeUndefined();
    expect([...seen.found]).toEqual([
      [
        dotForm(alice),
        [
          { server: "N1", cid: 8 },
          { server: "N1", cid: 3 },
        ],
      ],
    ]);
  });

  test("a long list is read to its end, of each server by its name", async () => {
    const many: Connected[] = Array.from({ length: 9 }, (_, at) => ({ cid: at + 10, name: "x" }));
    const place: Place = { N1: { FRONT: [self, ...many] }, N2: { FRONT: [...many, { cid: 90, name: dotForm(bob) }] } };
    const pair = [
      { ...three("N1"), active: 2, meta: 2 },
      { ...three("N2"), active: 2, meta: 2 },
    ];
    const given = parts(
      broker(
        () => pair,
        () => place,
      ).gather,
      { accounts: ["FRONT"], sizes: { page: 4, overlap: 2 } },
    );
    expect(await look(given, wanted(bob))).toEqual({
      gap: undefined,
      found: new Map([[dotForm(bob), [{ server: "N2", cid: 90 }]]]),
    });
  });

  const gaps: readonly [string, () => LookParts, RegExp][] = [
    [
      "a server that lists nothing",
      () =>
        parts(
          broker(
            () => [alone],
            () => ({}),
          ).gather,
        ),
      /did not list/,
    ],
    [
      "a connection without a name",
      () =>
        parts(
          broker(
            () => [alone],
            () => ({ N1: { FRONT: [self, { cid: 8 }] } }),
          ).gather,
        ),
      /bears no name/,
    ],
    [
      "a list without this daemon's own connection",
      () =>
        parts(
          broker(
            () => [alone],
            () => ({ N1: { FRONT: [{ cid: 8, name: "x" }] } }),
          ).gather,
        ),
      /own connection/,
    ],
    [
      "a daemon that has none",
      () =>
        parts(
          broker(
            () => [alone],
            () => complete,
          ).gather,
          { self: () => undefined },
        ),
      /own connection/,
    ],
    [
      "a server that is another one afterwards",
      () => {
        let asked = 0;
        const stats = () => [(asked += 1) <= 1 ? alone : { ...alone, id: asked <= 3 ? "N1" : "N2" }];
        return parts(broker(stats, () => complete).gather);
      },
      /came or went/,
    ],
    [
      "a second server that is silent",
      () =>
        parts(
          broker(
            () => [{ ...alone, active: 2 }],
            () => complete,
          ).gather,
        ),
      /known/,
    ],
  ];
  test.each(gaps)("%s is a gap, and what is seen is told all the same", async (_, make, why) => {
    expect((await look(make(), wanted(alice))).gap).toMatch(why);
  });

  test("more that end between two pages than they overlap are a gap; if it passes, it is none", async () => {
    let left: Connected[] = [];
    let churns = 0;
    const fresh = (): Connected[] => [self, ...Array.from({ length: 20 }, (_, at) => ({ cid: at + 10, name: "x" }))];
    const run = async (times: number) => {
      churns = times;
      const { gather } = broker(
        () => [alone],
        () => ({ N1: { FRONT: left } }),
      );
      const churning: Gather = async (subject, body, isEnough) => {
        if (subject.includes("FRONT") && body.includes('"offset":0')) left = fresh();
        const answers = await gather(subject, body, isEnough);
        if (subject.includes("FRONT") && (churns -= 1) >= 0) left = [self, ...left.slice(6)];
        return answers;
      };
      return look(parts(churning, { accounts: ["FRONT"], sizes: { page: 4, overlap: 2 } }), wanted(alice));
    };
    expect((await run(1000)).gap).toMatch(/came and went/);
    expect((await run(1)).gap).toBeUndefined();
  });

  test("who asks while a look is under way gets the next one, and shares it", async () => {
    const begun: string[][] = [];
    const ends: (() => void)[] = [];
    const ask = shareLooks(async (names) => {
      begun.push([...names]);
      await new Promise<void>((resolve) => ends.push(resolve));
      return { found: new Map(), gap: `look ${begun.length}` };
    });
    const turn = () => new Promise((resolve) => setImmediate(resolve));
    const first = ask(["a"]);
    await turn();
    const later = [ask(["b"]), ask(["c"])];
    await turn();
    expect(begun).toEqual([["a"]]);
    ends[0]?.();
    await turn();
    expect(begun).toEqual([["a"], ["b", "c"]]);
    ends[1]?.();
    expect((await first).gap).toBe("look 1");
    expect((await Promise.all(later)).map(({ gap }) => gap)).toEqual(["look 2", "look 2"]);
  });

  test("of a look that is shared each is given what he asked for, and no more", async () => {
    const all = new Map(["a", "b"].map((name) => [name, [{ server: "N1", cid: 1 }]] as const));
    const ask = shareLooks(() => Promise.resolve({ found: all, gap: undefined }));
    const given = await Promise.all([ask(["a"]), ask(["b", "c"])]);
    expect(given.map(({ found }) => [...found.keys()])).toEqual([["a"], ["b"]]);
  });

  test("one that fails ends nobody else's", async () => {
    let runs = 0;
    const ask = shareLooks(() => {
      runs += 1;
      return runs === 1 ? Promise.reject(new Error("no")) : Promise.resolve({ found: new Map(), gap: undefined });
    });
    await expect(ask(["a"])).rejects.toThrow("no");
    expect(await ask(["a"])).toMatchObject({ gap: undefined });
  });
});

type Script = readonly { readonly live?: readonly number[]; readonly gap?: string }[];

/** An oracle over looks that were written down, on a clock that only waiting moves. */
function scripted(script: Script, { kicks = () => true }: { readonly kicks?: (seen: Seen) => boolean } = {}) {
  let clock = 0;
  let at = 0;
  const looks: { readonly at: number; readonly names: readonly string[] }[] = [];
  const kicked: number[] = [];
  const oracle: Oracle = createOracle({
    look: (names) => {
      looks.push({ at: clock, names });
      const step = script[Math.min(at, script.length - 1)] ?? {};
      at += 1;
      const live = (step.live ?? []).map((cid) => ({ server: "N1", cid }));
      const found: Look["found"] = new Map(live.length === 0 ? [] : [[dotForm(alice), live]]);
      return Promise.resolve({ found, gap: step.gap });
    },
    kick: (seen) => {
      kicked.push(seen.cid);
      return Promise.resolve(kicks(seen));
    },
    me,
    now: () => clock,
    pause: (ms) => Promise.resolve((clock += ms)),
  });
  return { oracle, looks, kicked };
}

describe("W131.07 W131.10 PF.04 the oracle", () => {
  test("gone is said after a look that began later than a login from before can take", async () => {
    const { oracle, looks } = scripted([{}, {}]);
    expect(await oracle.evict([alice])).toEqual([{ ...alice, state: "gone", found: 0, closed: 0 }]);
    expect(looks.at(-1)?.at).toBeGreaterThanOrEqual(SETTLE_MS);
    // The broker's own time for a login, with TLS, and then some.
    expect(SETTLE_MS).toBeGreaterThan(MOST_LOGIN_SECONDS * 1000);
  });

  test("whoever slips in meanwhile is ended too, and the proof begins anew", async () => {
    const { oracle, looks, kicked } = scripted([{ live: [1] }, { live: [2] }, {}]);
    expect(await oracle.evict([alice])).toEqual([{ ...alice, state: "gone", found: 2, closed: 2 }]);
    expect(kicked).toEqual([1, 2]);
    expect(looks.map(({ at }) => at)).toEqual([0, SETTLE_MS, 2 * SETTLE_MS]);
  });

  test("whoever comes back each time is live", async () => {
    const { oracle } = scripted([{ live: [1] }, { live: [2] }, { live: [3] }]);
    expect(await oracle.evict([alice])).toEqual([{ ...alice, state: "live", found: 3, closed: 2, survived: 0 }]);
  });

  test("who was to end and is there again by its number has survived; a look with a gap counts no survivors", async () => {
    const deaf = scripted([{ live: [1, 2] }, { live: [1] }, { live: [1, 3] }]);
    expect(await deaf.oracle.evict([alice])).toMatchObject([{ state: "live", found: 3, survived: 1 }]);
    for (const at of [1, 2]) {
      const looks = [{ live: [1] }, { live: [2] }, { live: [3] }].map((one, n) =>
        n === at ? { ...one, gap: "a server is silent" } : one,
      );
      const [verdict] = await scripted(looks).oracle.evict([alice]);
      expect(verdict).toMatchObject({ state: "live", found: 3 });
      expect(verdict?.survived).toBeUndefined();
    }
  });

  test("a gap in the last look is unknown, whatever was ended; one in an earlier look is made good by it", async () => {
    const late = scripted([{ live: [1] }, { gap: "a server is silent" }]);
    expect(await late.oracle.evict([alice])).toEqual([
      { ...alice, state: "unknown", found: 1, closed: 1, why: "a server is silent" },
    ]);
    const early = scripted([{ live: [1], gap: "a server is silent" }, {}]);
    expect(await early.oracle.evict([alice])).toMatchObject([{ state: "gone", found: 1, closed: 1 }]);
  });

  test("what the broker did not end is not counted as ended", async () => {
    const { oracle } = scripted([{ live: [1, 2] }, {}], { kicks: ({ cid }) => cid === 1 });
    expect(await oracle.evict([alice])).toMatchObject([{ state: "gone", found: 2, closed: 1 }]);
  });

  test("its own connections are ended by nobody, and then nobody's are", async () => {
    const { oracle, looks } = scripted([{}]);
    expect(await failure(oracle.evict([alice, me]))).toMatchObject({ code: "bad-request" });
    expect(looks).toEqual([]);
  });

  test("liveness ends nothing: who is there is live at once, who is not is gone only after the wait", async () => {
    const { oracle, looks, kicked } = scripted([{ live: [1] }, {}]);
    expect(await oracle.liveness([alice, bob])).toEqual([
      { ...alice, state: "live", found: 1, closed: 0 },
      { ...bob, state: "gone", found: 0, closed: 0 },
    ]);
    expect(looks).toEqual([
      { at: 0, names: [dotForm(alice), dotForm(bob)] },
      { at: SETTLE_MS, names: [dotForm(bob)] },
    ]);
    expect(kicked).toEqual([]);
    const soon = scripted([{ live: [1] }]);
    expect(await soon.oracle.liveness([alice])).toMatchObject([{ state: "live" }]);
    expect(soon.looks).toHaveLength(1);
  });

  test("liveness that can't see everything is unknown at once", async () => {
    const { oracle, looks } = scripted([{ live: [1], gap: "a server is silent" }]);
    expect(await oracle.liveness([alice, bob])).toEqual([
      { ...alice, state: "live", found: 1, closed: 0 },
      { ...bob, state: "unknown", found: 0, closed: 0, why: "a server is silent" },
    ]);
    expect(looks).toHaveLength(1);
  });

  test("a KICK counts only if the broker says that it did it", async () => {
    const said = (...answers: readonly unknown[]) =>
      kickOver(() => Promise.resolve(answers.map(answer)))({ server: "N1", cid: 1 });
    expect(await said({ server: {} })).toBe(true);
    expect(await said({ server: {}, error: { code: 500 } })).toBe(false);
    expect(await said("?")).toBe(false);
    expect(await said()).toBe(false);
  });
});
