/** What the membership feed makes of what a broker may answer (§8), and that nothing decides by it. */
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type LiveView, KEPT_MS, createLive } from "../../services/delivery/feed/live.ts";
import { feedOf } from "../../services/delivery/feed/feed.ts";
import { type Listing, type Names, listSubscriptions } from "../../services/delivery/feed/subscriptions.ts";
import type { Answered, Gather } from "../../shared/broker/gather.ts";
import { gitTree } from "../../scripts/check/tree.ts";
import { matches } from "../../shared/protocol/base/channels.ts";
import { channelsHeard, feedEntry, feedRow } from "../../shared/protocol/chat/membership-feed.ts";
import { OWNER } from "../support/plane-parts.ts";

type Client = { readonly cid: number; readonly name?: string; readonly subjects: readonly string[] };
type Server = { readonly id: string; clients: readonly Client[]; isSilent?: boolean };
type Question = {
  readonly server_name: string;
  readonly offset?: number;
  readonly limit?: number;
  readonly cid?: number;
  readonly auth?: boolean;
  readonly subscriptions?: boolean;
};

const ACCOUNT = "AFRONT";

/** Servers that answer as the broker does; `between` runs after each question. */
function broker(servers: () => readonly Server[], between: (asked: number) => void = () => undefined) {
  const asked: Question[] = [];
  const gather: Gather = (subject, body, isEnough) => {
    const answers: Answered[] = [];
    const all = subject.endsWith("STATSZ") ? stats(servers()) : pages(servers(), JSON.parse(body) as Question, asked);
    for (const value of all) {
      answers.push({ json: <T>() => value as T });
      if (isEnough(answers)) break;
    }
    between(asked.length);
    return Promise.resolve(answers);
  };
  return { gather, asked };
}

const stats = (servers: readonly Server[]): unknown[] =>
  servers
    .filter(({ isSilent }) => isSilent !== true)
    .map(({ id }) => ({
      server: { id, name: `name-${id}`, cluster: "c" },
      statsz: { active_servers: servers.length, jetstream: { meta: { cluster_size: servers.length } } },
    }));

function pages(servers: readonly Server[], question: Question, asked: Question[]): unknown[] {
  asked.push(question);
  const { server_name: wanted, offset = 0, limit = 1024, cid, auth, subscriptions } = question;
  return servers
    .filter(({ id, isSilent }) => `name-${id}` === wanted && isSilent !== true)
    .map(({ id, clients }) => {
      const these =
        cid === undefined ? clients.slice(offset, offset + limit) : clients.filter((one) => one.cid === cid);
      const connections = these.map(({ cid: number, name, subjects }) => ({
        cid: number,
        subscriptions: subjects.length,
        ...(auth === true && name !== undefined ? { authorized_user: name } : {}),
        ...(subscriptions === true ? { subscriptions_list: subjects } : {}),
      }));
      return { server: { id, name: `name-${id}` }, data: { total: clients.length, connections } };
    });
}

const idOf = (actor: string): string => `${OWNER}.${actor}`;
const on = (...channels: readonly string[]): string[] => channels.map((channel) => `cotal.main.chat.*.*.${channel}`);
const client = (cid: number, ...channels: readonly string[]): Client => ({
  cid,
  name: idOf(`a${cid}`),
  subjects: [...on(...channels), `_INBOX_x.${cid}.>`],
});
const parts = (gather: Gather) => ({ gather, account: ACCOUNT, heard: channelsHeard("main") });
const here = { id: "N1", name: "name-N1" };

describe("W8.19 one server's subscriptions", () => {
  const listed = async (clients: readonly Client[], more: object = {}, names: Names = new Map()): Promise<Listing> =>
    listSubscriptions({ ...parts(broker(() => [{ id: "N1", clients }]).gather), ...more }, here, names);

  test("every connection of every page is read, each with its channels and nothing else", async () => {
    const clients = Array.from({ length: 25 }, (_, at) => client(at + 1, `c${at}`, "all"));
    const listing = await listed(clients, { sizes: { page: 10, overlap: 3 }, most: 7 });
    expect(listing).toEqual({
      kind: "listed",
      nameless: 0,
      hearings: clients.map(({ cid }) => ({ id: idOf(`a${cid}`), patterns: [`c${cid - 1}`, "all"], omitted: 0 })),
    });
  });

  test("no question asks for more subscriptions than are allowed, and of who has more none is asked for", async () => {
    const many = Array.from({ length: 100 }, (_, at) => `m${at}`);
    const clients = [client(1, "a"), client(2, ...many), client(3, "b", "c"), client(4, "d"), client(5, "e", "f")];
    const { gather, asked } = broker(() => [{ id: "N1", clients }]);
    const listing = await listSubscriptions({ ...parts(gather), most: 5 }, here, new Map());
    expect(listing).toMatchObject({
      hearings: [
        { patterns: ["a"], omitted: 0 },
        { id: idOf("a2"), patterns: [], omitted: 101 },
        { patterns: ["b", "c"] },
        { patterns: ["d"] },
        { patterns: ["e", "f"] },
      ],
    });
    const sums = asked
      .filter(({ subscriptions }) => subscriptions === true)
      .map(({ offset = 0, limit = 0 }) =>
        clients.slice(offset, offset + limit).reduce((sum, { subjects }) => sum + subjects.length, 0),
      );
    expect(sums.filter((sum) => sum > 5)).toEqual([]);
  });

  test("who a connection is is asked once, and forgotten with it", async () => {
    const names: Names = new Map();
    let clients = [client(1, "a"), client(2, "b")];
    const { gather, asked } = broker(() => [{ id: "N1", clients }]);
    const look = () => listSubscriptions(parts(gather), here, names);
    await look();
    asked.length = 0;
    const again = await look();
    expect(again).toMatchObject({ hearings: [{ id: idOf("a1") }, { id: idOf("a2") }] });
    expect(asked.filter(({ auth }) => auth === true)).toEqual([]);
    clients = [client(2, "b"), client(3, "c")];
    expect(await look()).toMatchObject({ hearings: [{ id: idOf("a2") }, { id: idOf("a3") }] });
    expect([...names.keys()]).toEqual([2, 3]);
  });

  test("who moves up because an older connection ended is read all the same, once", async () => {
    let clients = Array.from({ length: 6 }, (_, at) => client(at + 1, `c${at + 1}`));
    // The two oldest end between the count and the question for subjects.
    const { gather } = broker(
      () => [{ id: "N1", clients }],
      (asked) => {
        if (asked === 1) clients = clients.slice(2);
      },
    );
    const listing = await listSubscriptions({ ...parts(gather), most: 4 }, here, new Map());
    const patterns = listing.kind === "listed" ? listing.hearings.flatMap((one) => one.patterns) : [];
    expect(patterns.toSorted()).toEqual(["c3", "c4", "c5", "c6"]);
  });

  test.each([undefined, "", "no principal", "a.b.c", "=view", `${OWNER}.*`])(
    "a connection of the name %j is counted as one that bears none",
    async (name) => {
      const nobody = { cid: 1, subjects: on("a"), ...(name === undefined ? {} : { name }) };
      const listing = await listed([nobody, client(2, "b")]);
      expect(listing).toMatchObject({ nameless: 1, hearings: [{ id: idOf("a2") }] });
    },
  );

  test("a server that falls silent is missing, at whichever question", async () => {
    for (const at of [0, 1, 2]) {
      const server: Server = { id: "N1", clients: [client(1, "a"), client(2, "b"), client(3, "c")] };
      const { gather } = broker(
        () => [server],
        (asked) => {
          if (asked === at) server.isSilent = true;
        },
      );
      server.isSilent = at === 0;
      const listing = await listSubscriptions({ ...parts(gather), most: 2 }, here, new Map());
      expect(listing).toEqual({ kind: "missing", why: "server name-N1 did not list its connections" });
    }
  });
});

describe("W8.19 the live half over several servers", () => {
  const patternsOf = ({ hearings }: LiveView): string[] => hearings.flatMap(({ patterns }) => patterns).toSorted();
  const two = (): Server[] => [
    { id: "N1", clients: [client(1, "a")] },
    { id: "N2", clients: [client(1, "b")] },
  ];

  test("one that does not answer keeps what it said while it is counted, and the gap says so", async () => {
    const servers = two();
    let now = 0;
    const live = createLive({ ...parts(broker(() => servers).gather), now: () => now });
    expect(await live()).toMatchObject({ gap: undefined });
    Object.assign(servers[1] ?? {}, { isSilent: true, clients: [] });
    now = KEPT_MS;
    const partial = await live();
    expect(patternsOf(partial)).toEqual(["a", "b"]);
    expect(partial.gap).toMatch(/2 servers are known to be active, and 1 answered/);
    now = KEPT_MS + 1;
    expect(patternsOf(await live())).toEqual(["a"]);
  });

  test("one that left the cluster takes its clients along at once", async () => {
    let servers = two();
    const live = createLive({ ...parts(broker(() => servers).gather), now: () => 0 });
    await live();
    servers = servers.slice(0, 1);
    const seen = await live();
    expect([patternsOf(seen), seen.gap]).toEqual([["a"], undefined]);
  });

  test("what bears no name is told as a gap", async () => {
    const servers: Server[] = [{ id: "N1", clients: [{ cid: 1, subjects: on("a") }, client(2, "b")] }];
    const seen = await createLive({ ...parts(broker(() => servers).gather), now: () => 0 })();
    expect([patternsOf(seen), seen.gap]).toEqual([["b"], "1 connections bear no principal's name"]);
  });
});

describe("W8.19 what is written", () => {
  test("the union by principal; of who hears nothing there is no entry", () => {
    const live = {
      gap: undefined,
      hearings: [
        { id: idOf("a"), patterns: ["x", "team.>"], omitted: 0 },
        { id: idOf("a"), patterns: ["x"], omitted: 3 },
        { id: idOf("b"), patterns: [], omitted: 0 },
      ],
    };
    const durable = {
      all: () => [
        { id: idOf("a"), pattern: "y" },
        { id: idOf("c"), pattern: "team.>" },
      ],
    };
    expect(Object.fromEntries(feedOf(live, durable))).toEqual({
      [idOf("a")]: { live: ["team.>", "x"], durable: ["y"], omitted: 3 },
      [idOf("c")]: { live: [], durable: ["team.>"], omitted: 0 },
    });
  });

  test("a value fits whatever it is made from, durable ones stay first, and none is lost uncounted", () => {
    const pattern = fc.integer({ min: 1, max: 4096 }).map((length) => "x".repeat(length));
    const numbered = (all: readonly string[], lead: string) =>
      all.map((one, at) => `${lead}${at}.${one}`.slice(0, 4096));
    fc.assert(
      fc.property(
        fc.array(pattern, { maxLength: 120, size: "max" }),
        fc.array(pattern, { maxLength: 120, size: "max" }),
        (some, others) => {
          const [live, durable] = [numbered(some, "l"), numbered(others, "d")];
          const entry = feedEntry([...live, ...live], durable, 2);
          expect(JSON.stringify(feedRow(entry, Date.now())).length).toBeLessThanOrEqual(262_144 - 512);
          expect(entry.live.length + entry.durable.length + entry.omitted).toBe(live.length + durable.length + 2);
          const size = (all: readonly string[]) => all.reduce((sum, one) => sum + one.length + 3, 0);
          const isWhole = entry.durable.length === durable.length;
          expect(isWhole || size(durable) >= 250_000).toBe(true);
        },
      ),
      { numRuns: 60 },
    );
  });

  test("a subscription hears a channel exactly where the broker delivers one of somebody's posts", () => {
    const token = fc.constantFrom("cotal", "main", "chat", "a", "b", "*", "other", "inst");
    const subject = fc
      .tuple(
        fc.constantFrom("cotal", "*", "x"),
        fc.constantFrom("main", "*", "lab"),
        fc.constantFrom("chat", "*", "svc"),
      )
      .chain((lead) =>
        fc
          .tuple(fc.array(token, { maxLength: 4 }), fc.boolean(), fc.nat(3))
          .map(([rest, isOpen, cut]) =>
            [...lead.slice(0, cut), ...(cut < 3 ? [] : rest), ...(isOpen ? [">"] : [])].join("."),
          ),
      )
      .filter((text) => text !== "");
    const heard = channelsHeard("main");
    const senders = ["a.a", "a.b", "b.a", "b.b", "main.chat", "cotal.other", "inst.a", "other.chat"];
    const tokens = ["cotal", "main", "chat", "a", "b", "other", "inst"];
    const everyone = tokens.flatMap((owner) => tokens.map((actor) => `${owner}.${actor}`));
    fc.assert(
      fc.property(subject, fc.constantFrom("a", "b", "a.b", "other.a.b", "chat", "inst.inst"), (pattern, channel) => {
        const delivers = [...senders, ...everyone].some((sender) =>
          matches(pattern, `cotal.main.chat.${sender}.${channel}`),
        );
        const hears = heard(pattern);
        expect(hears !== undefined && matches(hears, channel)).toBe(delivers);
      }),
      { numRuns: 2000 },
    );
  });

  test.each([
    "cotal.main.chat.*.*.",
    "cotal.main.chat.*.*.a b",
    "cotal.main.chat.*.*.ü",
    "cotal.main.chat.*.*.a.>.b",
    "",
  ])("%j hears nothing", (subject) => {
    expect(channelsHeard("main")(subject)).toBeUndefined();
  });
});

describe("W8.19 display only", () => {
  test("the bucket is named where it is made, written and shown, and nowhere else", () => {
    const tree = gitTree(join(import.meta.dirname, "..", ".."));
    const named = tree.files
      .filter((file) => /^(shared|services|cli|launcher)\/.*\.ts$/.test(file))
      .filter((file) =>
        /bucket\.membership\b|cotal_membership_|(?<!kind: )"membership"|membership-feed\.ts/.test(tree.read(file)),
      );
    expect(named.toSorted()).toEqual([
      "services/delivery/feed/bucket.ts",
      "services/delivery/feed/feed.ts",
      "services/delivery/feed/members.ts",
      "shared/broker/resources.ts",
      "shared/grants/feed-profiles.ts",
      "shared/grants/host-profiles.ts",
      "shared/protocol/base/names.ts",
    ]);
  });
});
