/** What a sweep of connections proves, against answers that a broker may give. */
import type { Msg } from "@nats-io/transport-node";
import { describe, expect, test } from "vitest";
import { type Asking, SETTLE_MS, connectionsOver, sweep } from "../../shared/broker/still-connected.ts";
import { MOST_LOGIN_SECONDS } from "../../shared/grants/gates.ts";
import { ErrorCode } from "../../shared/protocol/base/errors.ts";
import { OWNER } from "../support/plane-parts.ts";

type Listed = { readonly cid: number; readonly authorized_user?: string; readonly jwt?: string };
type Question = { readonly auth: boolean; readonly sort: string; readonly offset: number; readonly limit: number };

const alice = { owner: OWNER, actor: "alice" };
const SELF: Listed = { cid: 3, authorized_user: "UKEY", jwt: jwtOf({ name: `${OWNER}.auth` }) };
const of = (cid: number, actor = "bob"): Listed => ({ cid, authorized_user: `${OWNER}.${actor}` });

function jwtOf(claims: object): string {
  return `e30.${Buffer.from(JSON.stringify(claims)).toString("base64url")}.x`;
}

/** A broker that lists these connections; `between` runs after each page and may change them. */
function broker(
  listed: Listed[],
  over: { cluster?: string; servers?: string[]; between?: (page: number) => void } = {},
) {
  const { servers = ["N1"], between } = over;
  const asked: Question[] = [];
  const answer = (body: unknown, id: string): Msg => {
    const question = JSON.parse(String(body)) as Question;
    if (id === servers[0]) asked.push(question);
    const { offset, limit } = question;
    const page = listed.toSorted((one, other) => one.cid - other.cid).slice(offset, offset + limit);
    const whole = { server: { id }, data: { total: listed.length, connections: page } };
    return { json: () => whole } as unknown as Msg;
  };
  const told = (body: unknown): Msg[] => {
    const messages = servers.map((id) => answer(body, id));
    between?.(asked.length);
    return messages;
  };
  const front = {
    info: { server_id: "N1", client_id: SELF.cid, ...(over.cluster === undefined ? {} : { cluster: over.cluster }) },
    request: (_: string, body: unknown) => {
      const [first] = told(body);
      return first === undefined ? Promise.reject(new Error("nobody")) : Promise.resolve(first);
    },
    requestMany: (_: string, body: unknown) =>
      Promise.resolve(
        (async function* () {
          yield* await Promise.resolve(told(body));
        })(),
      ),
  };
  return { asked, front: front as unknown as Asking };
}

const SMALL = { page: 4, overlap: 2 };
const many = (count: number): Listed[] => [SELF, ...Array.from({ length: count }, (_, at) => of(at + 10))];

describe("one sweep", () => {
  test("W131.13 counts who bears the name, of a callout by it, of any other by its JWT", async () => {
    const listed = [
      SELF,
      of(4, "alice"),
      of(5),
      { cid: 6, authorized_user: "UOTHER", jwt: jwtOf({ name: `${OWNER}.alice` }) },
      of(7, "alice2"),
    ];
    const { front, asked } = broker(listed);
    expect(await sweep(front, alice)).toEqual({ kind: "some", count: 2 });
    expect(asked).toEqual([{ auth: true, sort: "cid", offset: 0, limit: 1024 }]);
    expect(await sweep(broker([SELF, of(4)]).front, alice)).toEqual({ kind: "none" });
  });

  test("W131.13 reads page after page to the end, and counts nobody twice", async () => {
    const listed = [...many(9), of(30, "alice"), of(31, "alice")];
    const { front, asked } = broker(listed);
    expect(await sweep(front, alice, SMALL)).toEqual({ kind: "some", count: 2 });
    expect(asked.map(({ offset }) => offset)).toEqual([0, 2, 4, 6, 8]);
  });

  test("W131.13 a connection that ends between two pages hides no other one", async () => {
    const listed = [...many(9), of(30, "alice")];
    // The first page's connections end, one after each page: what lies behind moves forward.
    const { front } = broker(listed, { between: () => void listed.splice(1, 1) });
    expect(await sweep(front, alice, SMALL)).toEqual({ kind: "some", count: 1 });
  });

  const unknown: readonly [string, ErrorCode, () => { front: Asking }][] = [
    ["a cluster", ErrorCode.Unimplemented, () => broker(many(1), { cluster: "c" })],
    ["a second server that answers", ErrorCode.Unimplemented, () => broker(many(1), { servers: ["N1", "N2"] })],
    ["another server that answers", ErrorCode.Unimplemented, () => broker(many(1), { servers: ["N2"] })],
    ["nobody who answers", ErrorCode.Unavailable, () => broker(many(1), { servers: [] })],
    ["a list without the asker", ErrorCode.Unavailable, () => broker([of(10)])],
    ["a list of nothing", ErrorCode.Unavailable, () => broker([])],
    ["a connection without a name", ErrorCode.FailedPrecondition, () => broker([SELF, { cid: 9 }])],
    ["a JWT without a name", ErrorCode.FailedPrecondition, () => broker([SELF, { cid: 9, jwt: jwtOf({}) }])],
    [
      "more ends between two pages than they overlap",
      ErrorCode.Unavailable,
      () => {
        const listed = many(20);
        return broker(listed, { between: () => void listed.splice(1, 3) });
      },
    ],
    [
      "a second page that never comes",
      ErrorCode.Unavailable,
      () => {
        const servers = ["N1"];
        return broker(many(9), { servers, between: () => void servers.splice(0) });
      },
    ],
  ];
  test.each(unknown)("W131.13 %s is unknown, never none", async (_, code, make) => {
    expect(await sweep(make().front, alice, SMALL)).toMatchObject({
      kind: "unknown",
      code,
      why: expect.any(String) as string,
      next: expect.any(String) as string,
    });
  });

  test("W131.13 a process without a front connection knows nothing", async () => {
    expect(await sweep(undefined, alice)).toMatchObject({ kind: "unknown", code: ErrorCode.Unavailable });
  });
});

describe("the proof (H65)", () => {
  test("W131.13 a sweep that begins after the broker's time for a login decides: one that slips in meanwhile is seen", async () => {
    const listed = [SELF];
    const waits: number[] = [];
    const { front, asked } = broker(listed);
    const late = connectionsOver(
      () => front,
      (ms) => {
        waits.push(ms);
        listed.push(of(50, "alice"));
        return Promise.resolve();
      },
    );
    expect(await late(alice)).toEqual({ kind: "some", count: 1 });
    expect(waits).toEqual([SETTLE_MS]);
    expect(asked).toHaveLength(2);
    // The broker's own time for a login, with TLS, and then some.
    expect(SETTLE_MS).toBeGreaterThan(MOST_LOGIN_SECONDS * 1000);
  });

  test("who is there already is told at once", async () => {
    const ask = connectionsOver(
      () => broker([SELF, of(4, "alice")]).front,
      () => Promise.reject(new Error("it waited")),
    );
    expect(await ask(alice)).toEqual({ kind: "some", count: 1 });
  });
});
