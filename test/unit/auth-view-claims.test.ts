/** Views that rest on more than a scope (§10): a session's grant, one upload, a token made for one inbox. */
import { randomBytes } from "node:crypto";
import { describe, expect, test } from "vitest";
import { createProbingBudget } from "../../services/auth/edge/probing-budget.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import { CotalError } from "../../shared/protocol/base/errors.ts";
import { drawLifecycleUid } from "../../shared/protocol/base/principals.ts";
import { Face } from "../../shared/protocol/endpoint/views.ts";
import { BearerAct, MAX_BEARER_SECONDS, signBearer } from "../../shared/trust/bearer.ts";
import { STRANGER } from "../support/plane-parts.ts";
import {
  DM_AUDIENCE,
  EVERY_SCOPE,
  HOST,
  type Registered,
  type ViewRig,
  deniedAs,
  grantOf,
  holderOf,
  minted,
  reasonOf,
  viewRig,
} from "../support/view-rig.ts";

const INSTANCE = "m".repeat(26);
const seconds = (rig: ViewRig): number => Math.floor(rig.clock.now / 1000);

describe("W10.16 session-caller", () => {
  async function opened(over: Parameters<typeof viewRig>[0] = {}) {
    const rig = await viewRig(over);
    // The grant is the authority: no scope is asked for.
    const row = await rig.grant("cli", { capabilities: [] });
    await rig.manager({ owner: HOST, epoch: 4 }, INSTANCE);
    const holder = holderOf(row);
    const serving = { instanceId: INSTANCE, epoch: 4 };
    const session = rig.session({ holder, serving });
    const body = async (over2: object = {}) => ({
      actor: "cli",
      idToken: await rig.token(),
      view: "session-caller",
      sessionGrant: { ...grantOf(session), ...over2 },
    });
    return { rig, holder, serving, session, body };
  }
  type Opened = Awaited<ReturnType<typeof opened>>;

  test("a grant that stands is a bearer with its claim, and a connection of that one session", async () => {
    const { rig, session, body } = await opened();
    const { bearer, claims } = await rig.bearer(await body(), Face.Public);
    expect(claims.act).toMatchObject({
      view: "session-caller",
      session: { endpoint: "manager", sessionId: session.sessionId, epoch: 4, exp: session.exp },
    });
    const jwt = minted(await rig.connect(bearer));
    expect([jwt.profile, jwt.pub]).toEqual(["session-caller", [`cotal.main.eps.manager.${session.sessionId}.4.in`]]);
    expect(jwt.sub.filter((subject) => !subject.startsWith("_INBOX_"))).toEqual([
      `cotal.main.eps.manager.${session.sessionId}.4.out`,
    ]);
  });

  test("the bearer lives no longer than the session; the connection ends with the grant, not with the bearer", async () => {
    const { rig, holder, serving, body } = await opened();
    const long = rig.session({ holder, serving, exp: seconds(rig) + 7200 });
    const first = await rig.bearer(await body());
    expect(first.claims.exp - first.claims.iat).toBe(MAX_BEARER_SECONDS);
    expect(minted(await rig.connect(first.bearer)).exp).toBe(long.exp);
    const short = rig.session({ holder, serving, exp: seconds(rig) + 60 });
    const second = await rig.bearer(await body());
    expect(second.claims.exp).toBe(short.exp);
    expect(minted(await rig.connect(second.bearer)).exp).toBe(short.exp);
  });

  /** What moves in the row or beside it, and the refusal it leads to. */
  const MOVED: readonly (readonly [string, (one: Opened) => Promise<unknown>, RegExp])[] = [
    ...(["issuing", "closed", "expired", "superseded", "retired"] as const).map(
      (state) =>
        [
          `it is ${state}`,
          async ({ rig, holder, serving }: Opened) => rig.session({ holder, serving, state }),
          new RegExp(`^expired: the session is ${state}`),
        ] as const,
    ),
    [
      "its holder is another owner",
      async ({ rig, holder, serving }) => rig.session({ holder: { ...holder, owner: STRANGER }, serving }),
      /^permission-denied: the session is somebody else's/,
    ],
    [
      "its holder is another actor",
      async ({ rig, holder, serving }) => rig.session({ holder: { ...holder, actor: "other" }, serving }),
      /^permission-denied: the session is somebody else's/,
    ],
    [
      "its holder is another lifecycle",
      async ({ rig, holder, serving }) =>
        rig.session({ holder: { ...holder, lifecycleUid: drawLifecycleUid(randomBytes) }, serving }),
      /^permission-denied: the session is somebody else's/,
    ],
    [
      "it is served by another endpoint",
      async ({ rig, holder, serving }) => rig.session({ holder, serving, endpoint: "delivery" }),
      /^permission-denied: the session is served by/,
    ],
    [
      "it is served by another start",
      async ({ rig, holder, serving }) => rig.session({ holder, serving: { ...serving, epoch: 5 } }),
      /^permission-denied: the session is served by/,
    ],
    [
      "its end has come",
      async ({ rig, holder, serving }) => rig.session({ holder, serving, exp: seconds(rig) }),
      /^(expired: the session has ended|permission-denied: the session ends at another time)/,
    ],
    [
      "the manager that serves it is another instance, unknown",
      async ({ rig, holder, serving }) => rig.session({ holder, serving: { ...serving, instanceId: "n".repeat(26) } }),
      /^failed-precondition: the manager that serves the session/,
    ],
    ...(
      [
        ["is frozen", { gate: { state: "frozen", op: { opId: "x", kind: "takeover" } } }],
        ["has another registration", { gate: { registrationRevision: 1 } }],
        ["has a status of another start", { status: { epoch: 9 } }],
        ["started anew since", { epoch: 5 }],
      ] satisfies (readonly [string, Omit<Registered, "owner">])[]
    ).map(
      ([what, over]) =>
        [
          `the manager that serves it ${what}`,
          async ({ rig }: Opened) => rig.manager({ owner: HOST, epoch: 4, ...over }, INSTANCE),
          /^failed-precondition: the manager that serves the session/,
        ] as const,
    ),
    [
      "the manager that serves it is somebody else's",
      async ({ rig }) => rig.manager({ owner: STRANGER, epoch: 4 }, INSTANCE),
      /^failed-precondition: the manager that serves the session/,
    ],
  ];

  test.each(MOVED)("at the exchange: %s", async (_, move, denied) => {
    const one = await opened();
    await move(one);
    const writes = one.rig.ledger.writes.length;
    const { status, body } = await one.rig.ask(await one.body());
    expect(`${String(Reflect.get(body, "code"))}: ${String(Reflect.get(body, "error"))}`).toMatch(denied);
    expect(status).toBeGreaterThanOrEqual(401);
    expect(one.rig.ledger.writes.length).toBe(writes);
  });

  test.each(MOVED)("W10.09 at the connect: %s", async (_, move, denied) => {
    const one = await opened();
    const { bearer } = await one.rig.bearer(await one.body());
    expect(deniedAs(await one.rig.connect(bearer))).toBe("let in");
    await move(one);
    const writes = one.rig.ledger.writes.length;
    expect(deniedAs(await one.rig.connect(bearer))).toMatch(denied);
    expect(one.rig.ledger.writes.length).toBe(writes);
  });

  test.each([
    ["another signature", { sig: "another" }],
    ["a session that there is not", { sessionId: "t".repeat(26) }],
    ["another endpoint", { endpoint: "delivery" }],
    ["another epoch", { epoch: 5 }],
  ])("at the exchange: a grant of %s", async (_, over) => {
    const { rig, body } = await opened();
    expect(reasonOf(await rig.ask(await body(over)))).toBe("403 permission-denied");
  });

  test("at the connect the row must end when the claim says, and no signature is asked for", async () => {
    const { rig, holder, serving, session, body } = await opened();
    const { bearer } = await rig.bearer(await body());
    rig.session({ holder, serving, grantSig: "another" });
    expect(deniedAs(await rig.connect(bearer))).toBe("let in");
    rig.session({ holder, serving, exp: session.exp + 1 });
    expect(deniedAs(await rig.connect(bearer))).toMatch(/^permission-denied: the session ends at another time/);
  });

  test("a claim that names a longer end than its row is denied, whoever signed it", async () => {
    const { rig, session, body } = await opened();
    const { claims } = await rig.bearer(await body());
    const act = BearerAct.parse({
      ...claims.act,
      session: { endpoint: "manager", sessionId: session.sessionId, epoch: 4, exp: session.exp + 3600 },
    });
    expect(deniedAs(await rig.connect(signBearer({ ...claims, act }, rig.signer)))).toMatch(/^permission-denied/);
  });

  test("somebody else with the whole grant has nothing", async () => {
    const { rig, body } = await opened();
    await rig.grant("cli", { owner: rig.ownerOf("thief") });
    const answer = await rig.ask({ ...(await body()), idToken: await rig.token({ sub: "thief" }) });
    expect(reasonOf(answer)).toBe("403 permission-denied");
    await rig.grant("second");
    expect(reasonOf(await rig.ask({ ...(await body()), actor: "second" }))).toBe("403 permission-denied");
  });

  test("a row of another shape, a deleted one, and a store that can't be read let nobody in", async () => {
    const broken = { now: false };
    const away = (): Promise<never> => Promise.reject(new CotalError("unavailable", "the broker is away"));
    const { rig, session, body } = await opened({
      around: (store: LedgerStore) => ({
        ...store,
        read: (bucket, key) => (broken.now && bucket === "sessions" ? away() : store.read(bucket, key)),
      }),
    });
    const { bearer } = await rig.bearer(await body());
    broken.now = true;
    expect(reasonOf(await rig.ask(await body()))).toBe("503 unavailable");
    expect(deniedAs(await rig.connect(bearer))).toBe("unavailable: the broker is away");
    broken.now = false;
    rig.ledger.put("sessions", `session.${session.sessionId}`, { ...session, more: true });
    expect(reasonOf(await rig.ask(await body()))).toBe("409 failed-precondition");
    expect(deniedAs(await rig.connect(bearer))).toMatch(/^failed-precondition/);
    rig.ledger.mark("sessions", `session.${session.sessionId}`);
    expect((await rig.ask(await body())).status).toBe(409);
    expect(deniedAs(await rig.connect(bearer))).not.toBe("let in");
  });

  test("its refusals count as nobody's probing", async () => {
    const { rig, body } = await opened();
    const ask = rig.askWith({ budget: createProbingBudget({ burst: 1, perMinute: 1 }, () => rig.clock.now) });
    for (let n = 0; n < 5; n += 1) expect((await ask(await body({ sig: "another" }))).status).toBe(403);
    expect((await ask({ ...(await body()), idToken: "junk" })).status).toBe(401);
    expect((await ask({ ...(await body()), idToken: "junk" })).status).toBe(429);
  });

  test("W10.17 nothing is written to the store of sessions, whatever is asked", async () => {
    const { rig, body } = await opened();
    const { bearer } = await rig.bearer(await body());
    await rig.connect(bearer);
    await rig.ask(await body({ sig: "another" }));
    expect(rig.ledger.writes.filter((at) => at.startsWith("sessions/"))).toEqual([]);
  });
});

describe("W10.18 transfer-writer", () => {
  const transferWriter = { instanceId: INSTANCE, hex: "ab".repeat(32) };
  const body = async (rig: ViewRig, over: object = {}) => ({
    actor: "cli",
    idToken: await rig.token(),
    view: "transfer-writer",
    transferWriter: { ...transferWriter, ...over },
  });

  test("writes the chunks and the record of the one object that its claim names, on either face", async () => {
    const rig = await viewRig();
    await rig.grant("cli", { capabilities: ["admin"] });
    for (const face of [Face.Loopback, Face.Public]) {
      const { bearer, claims } = await rig.bearer(await body(rig), face);
      expect(claims.act).toMatchObject({ view: "transfer-writer", transferWriter });
      const jwt = minted(await rig.connect(bearer));
      expect([jwt.profile, jwt.sub.length]).toEqual(["transfer-writer", 1]);
      const bucket = `$O.cotal_xfer_main_${INSTANCE}`;
      expect(jwt.pub).toEqual([
        `${bucket}.C.${"ab".repeat(32)}`,
        expect.stringMatching(/^\$O\.cotal_xfer_main_m{26}\.M\.[\w=-]{96}$/),
      ]);
    }
  });

  test("another claim is another object: nothing of the first", async () => {
    const rig = await viewRig();
    await rig.grant("cli", { capabilities: ["admin"] });
    const subjects = async (over: object): Promise<readonly string[]> =>
      minted(await rig.connect((await rig.bearer(await body(rig, over))).bearer)).pub;
    const all = [
      await subjects({}),
      await subjects({ hex: "cd".repeat(32) }),
      await subjects({ instanceId: "n".repeat(26) }),
    ];
    expect(new Set(all.flat()).size).toBe(6);
  });

  test("needs the scope admin, at the exchange and at the connect, and no other word stands in for it", async () => {
    const rig = await viewRig();
    const row = await rig.grant("cli", { capabilities: EVERY_SCOPE.filter((word) => word !== "admin") });
    expect(reasonOf(await rig.ask(await body(rig)))).toBe("403 permission-denied");
    await rig.grant("cli", { capabilities: ["admin"] });
    const { bearer } = await rig.bearer(await body(rig));
    await rig.authority.narrow(row, { capabilities: [] });
    expect(deniedAs(await rig.connect(bearer))).toMatch(/^permission-denied: transfer-writer needs the scope admin/);
  });
});

describe("W10.19 dm-reader", () => {
  async function reader(over: Parameters<typeof viewRig>[0] = {}) {
    const rig = await viewRig(over);
    // No scope is asked for.
    const { lifecycleUid } = await rig.grant("cli", { capabilities: [] });
    const ask = async (claims: object = {}, body: object = {}, face: Face = Face.Loopback) =>
      rig.ask(
        { actor: "cli", idToken: await rig.dmToken("cli", lifecycleUid, { ...claims }), view: "dm-reader", ...body },
        face,
      );
    return { rig, lifecycleUid, ask };
  }

  test("a token for this inbox is a bearer that reads it and nothing else", async () => {
    const { rig, lifecycleUid, ask } = await reader();
    const answer = await ask();
    expect(answer.status).toBe(200);
    const bearer = String(Reflect.get(answer.body, "bearer"));
    expect(rig.claimsOf(bearer).act).toMatchObject({ view: "dm-reader", actor: "cli", lifecycleUid });
    const jwt = minted(await rig.connect(bearer));
    const durable = `dm_${rig.owner}-cli-${lifecycleUid}`;
    expect(jwt.profile).toBe("dm-reader");
    expect(jwt.pub).toEqual([`$JS.API.CONSUMER.MSG.NEXT.DM_main.${durable}`, `$JS.ACK.DM_main.${durable}.>`]);
    expect(jwt.sub).toHaveLength(1);
  });

  test.each([
    ["another actor", { actor: "other" }, "401 proof-purpose"],
    ["no actor", { actor: undefined }, "401 proof-missing-claim"],
    ["an actor that is none", { actor: "*" }, "401 proof-missing-claim"],
    ["another space", { space: "lab" }, "401 proof-purpose"],
    ["no space", { space: undefined }, "401 proof-missing-claim"],
    ["another lifecycle", { lifecycle: "z".repeat(26) }, "403 permission-denied"],
    ["no lifecycle", { lifecycle: undefined }, "401 proof-missing-claim"],
    ["a lifecycle that is none", { lifecycle: "" }, "401 proof-missing-claim"],
    ["another purpose", { purpose: "tool-result" }, "401 proof-purpose"],
    ["no purpose", { purpose: undefined }, "401 proof-purpose"],
    ["a purpose that is no word", { purpose: ["dm-reader"] }, "401 proof-purpose"],
    ["the ordinary audience", { aud: "cotal" }, "401 proof-wrong-audience"],
    ["another issuer", { iss: "https://elsewhere.test" }, "401 proof-wrong-issuer"],
    ["no subject", { sub: undefined }, "401 proof-missing-claim"],
    ["an end that has come", { exp: 1 }, "401 proof-expired"],
    ["no end", { exp: undefined }, "401 proof-missing-claim"],
    ["an event", { events: {} }, "401 proof-wrong-type"],
  ])("a token with %s", async (_, claims, reason) => {
    const { rig, ask } = await reader();
    await rig.grant("other");
    const writes = rig.ledger.writes.length;
    expect(reasonOf(await ask(claims))).toBe(reason);
    expect(rig.ledger.writes.length).toBe(writes);
  });

  test("a token whose end has a fraction is a bearer that ends no later", async () => {
    const { rig, ask } = await reader();
    const exp = Math.floor(rig.clock.now / 1000) + 30.5;
    const answer = await ask({ exp });
    expect([answer.status, Reflect.get(answer.body, "expiresAt")]).toEqual([200, Math.floor(exp)]);
  });

  test("a token of somebody else reads somebody else's inbox, if that, and never this one", async () => {
    const { rig, lifecycleUid, ask } = await reader();
    expect(reasonOf(await ask({ sub: "thief" }))).toBe("403 permission-denied");
    await rig.grant("cli", { owner: rig.ownerOf("thief") });
    // Their own actor of that name has another lifecycle.
    expect(reasonOf(await ask({ sub: "thief", lifecycle: lifecycleUid }))).toBe("403 permission-denied");
  });

  test("the request must name the view and the token's own actor", async () => {
    const { rig, ask } = await reader();
    await rig.grant("other");
    expect(reasonOf(await ask({}, { actor: "other" }))).toBe("401 proof-purpose");
    expect(reasonOf(await ask({}, { view: undefined }))).toBe("401 proof-wrong-audience");
    expect(reasonOf(await ask({}, { view: "admin" }))).toBe("401 proof-wrong-audience");
    expect(reasonOf(await ask({}, { space: "lab" }))).toBe("400 other-space");
  });

  test("W10.20 an ordinary door refuses a token with a purpose even under the ordinary audience", async () => {
    const { rig, ask } = await reader();
    const aud = { aud: ["cotal", DM_AUDIENCE] };
    expect(reasonOf(await ask(aud, { view: undefined }))).toBe("401 proof-purpose");
    expect((await ask(aud)).status).toBe(200);
    expect(reasonOf(await rig.ask({ actor: "cli", idToken: await rig.token({ purpose: "" }) }))).toBe(
      "401 proof-purpose",
    );
  });

  test("the ordinary token, also with the claims, opens no inbox", async () => {
    const { rig, lifecycleUid } = await reader();
    const claims = { actor: "cli", lifecycle: lifecycleUid, space: "main" };
    const idToken = await rig.token(claims);
    expect(reasonOf(await rig.ask({ actor: "cli", idToken, view: "dm-reader" }))).toBe("401 proof-wrong-audience");
  });

  test("never on the public face, however good the token", async () => {
    const { rig, ask } = await reader();
    const writes = rig.ledger.writes.length;
    expect(reasonOf(await ask({}, {}, Face.Public))).toBe("403 view-face");
    expect(rig.ledger.writes.length).toBe(writes);
  });

  test("the bearer, and with it the connection, ends with the token", async () => {
    const { rig, ask } = await reader();
    const exp = seconds(rig) + 60;
    const bearer = String(Reflect.get((await ask({ exp })).body, "bearer"));
    expect(rig.claimsOf(bearer).exp).toBe(exp);
    expect(minted(await rig.connect(bearer)).exp).toBe(exp);
    rig.clock.now += 60_000;
    expect(() => rig.claimsOf(bearer)).toThrow("expired");
    // Within the tolerance of two clocks an ordinary proof still counts; this one has nothing left to give.
    expect(reasonOf(await ask({ exp: seconds(rig) - 1 }))).toBe("401 proof-expired");
    const long = String(Reflect.get((await ask({ exp: seconds(rig) + 86_400 })).body, "bearer"));
    expect(rig.claimsOf(long).exp - rig.claimsOf(long).iat).toBe(MAX_BEARER_SECONDS);
  });

  test("W10.09 a lifecycle that has ended since is denied at the connect, and its token opens nothing", async () => {
    const { rig, ask } = await reader();
    const { owner } = rig;
    const bearer = String(Reflect.get((await ask()).body, "bearer"));
    await rig.authority.revoke({ owner, actor: "cli" });
    expect(deniedAs(await rig.connect(bearer))).toMatch(/^permission-denied/);
    expect(reasonOf(await ask())).toBe("403 permission-denied");
  });

  test("where no audience is set for such tokens there are none", async () => {
    const { rig, lifecycleUid } = await reader();
    const idToken = await rig.dmToken("cli", lifecycleUid);
    const peer = { face: Face.Loopback, address: "192.0.2.7" };
    const answer = await rig.exchangeWith({})({ space: "main", actor: "cli", idToken, view: "dm-reader" }, peer);
    expect(reasonOf(answer)).toBe("501 view-unissued");
  });
});
