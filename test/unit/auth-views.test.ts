/**
 * Views (§10): who gets which, on which face, by which proof; what a request must bring; and that each
 * connect asks again.
 */
import { describe, expect, test } from "vitest";
import { BearerAct, BearerFault, signBearer, verifyBearer } from "../../shared/trust/bearer.ts";
import { Face } from "../../shared/protocol/endpoint/views.ts";
import { createProbingBudget } from "../../services/auth/edge/probing-budget.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import { CotalError } from "../../shared/protocol/base/errors.ts";
import {
  EVERY_SCOPE,
  HOST,
  type ViewRig,
  deniedAs,
  grantOf,
  holderOf,
  minted,
  reasonOf,
  viewRig,
} from "../support/view-rig.ts";

const { Loopback, Public } = Face;
const INSTANCE = "m".repeat(26);
const TRANSFER = { instanceId: INSTANCE, hex: "ab".repeat(32) };

/** Somebody with every scope, an agent with every scope, one manager and one session: nothing is missing. */
async function everything() {
  const rig = await viewRig();
  const person = await rig.grant("cli");
  const { row: robot, secret } = await rig.agent("robot");
  await rig.manager({ owner: HOST }, INSTANCE);
  const serving = { instanceId: INSTANCE, epoch: 1 };
  const session = rig.session({ holder: holderOf(person), serving });
  const parts: Readonly<Record<string, object>> = {
    "session-caller": { sessionGrant: grantOf(session) },
    "transfer-writer": { transferWriter: TRANSFER },
  };
  const proofs = {
    person: async () => ({ actor: "cli", idToken: await rig.token() }),
    agent: async () => ({ actor: "robot", owner: robot.owner, secret }),
    "dm-reader": async () => ({ actor: "cli", idToken: await rig.dmToken("cli", person.lifecycleUid) }),
  };
  const asked = async (view: string | undefined, face: Face, proof: keyof typeof proofs) =>
    rig.ask({ ...(await proofs[proof]()), ...(view === undefined ? {} : { view, ...parts[view] }) }, face);
  return { rig, person, robot, secret, session, asked };
}

/**
 * Written by hand from §10: for each view, what a person, a managed agent and a `dm-reader` proof are
 * answered, on the loopback face and on the public one.
 */
const NEVER = ["400 view-unknown", "400 view-unknown", "400 view-unknown"] as const;
const PERSON_HERE = [
  ["200 undefined", "403 view-proof", "401 proof-wrong-audience"],
  ["403 view-face", "403 view-face", "401 proof-wrong-audience"],
] as const;
const PERSON_ANYWHERE = [PERSON_HERE[0], PERSON_HERE[0]] as const;
/** An agent's request has no place for such a part. */
const PERSON_WITH_A_PART = [
  ["200 undefined", "400 unknown-field", "401 proof-wrong-audience"],
  ["200 undefined", "400 unknown-field", "401 proof-wrong-audience"],
] as const;
const EVERYBODY = [
  ["200 undefined", "200 undefined", "401 proof-wrong-audience"],
  ["200 undefined", "200 undefined", "401 proof-wrong-audience"],
] as const;

const MATRIX: readonly (readonly [
  view: string | undefined,
  expected: readonly [readonly [string, string, string], readonly [string, string, string]],
])[] = [
  [undefined, EVERYBODY],
  ["admin", PERSON_HERE],
  ["purger", PERSON_HERE],
  ["deployer", PERSON_HERE],
  ["channel-writer", PERSON_ANYWHERE],
  ["channel-purger", PERSON_ANYWHERE],
  ["manager-caller", EVERYBODY],
  ["session-caller", PERSON_WITH_A_PART],
  ["transfer-writer", PERSON_WITH_A_PART],
  [
    "dm-reader",
    [
      ["401 proof-wrong-audience", "403 view-proof", "200 undefined"],
      ["401 proof-wrong-audience", "403 view-face", "403 view-face"],
    ],
  ],
  [
    "manager-service",
    [
      ["501 view-unissued", "403 view-proof", "401 proof-wrong-audience"],
      ["403 view-face", "403 view-face", "401 proof-wrong-audience"],
    ],
  ],
  ["service-endpoint", [NEVER, NEVER]],
  ["platform-control", [NEVER, NEVER]],
  ["environment-manager", [NEVER, NEVER]],
  ["agent", [NEVER, NEVER]],
  ["operator", [NEVER, NEVER]],
  ["constructor", [NEVER, NEVER]],
  ["", [NEVER, NEVER]],
  ["Admin", [NEVER, NEVER]],
];

describe("W10.10 W10.33 the whole of it: view, face and proof", () => {
  test.each(MATRIX)("%s", async (view, expected) => {
    const { rig, asked } = await everything();
    const answers: string[][] = [];
    for (const face of [Loopback, Public]) {
      const row: string[] = [];
      for (const proof of ["person", "agent", "dm-reader"] as const) {
        const writes = rig.ledger.writes.length;
        const answer = await asked(view, face, proof);
        row.push(reasonOf(answer));
        expect(answer.status === 200 || rig.ledger.writes.length === writes).toBe(true);
        expect("bearer" in answer.body).toBe(answer.status === 200);
      }
      answers.push(row);
    }
    expect(answers).toEqual(expected);
  });
});

describe("W10.09 a view is a closed profile, minted instead of the agent's", () => {
  /** The scope that opens it, the profile, and how many rows it has. */
  const plain = [
    ["admin", "admin"],
    ["purger", "admin"],
    ["channel-writer", "channels"],
    ["channel-purger", "purge"],
    ["deployer", "deploy"],
  ] as const;

  test.each(plain)("%s, for the scope %s and for no other", async (view, scope) => {
    const rig = await viewRig();
    const others = EVERY_SCOPE.filter((word) => word !== scope);
    expect(others).toHaveLength(5);
    await rig.grant("poor", { capabilities: others });
    await rig.grant("cli", { capabilities: [scope] });
    const idToken = await rig.token();
    const refused = await rig.ask({ idToken, actor: "poor", view });
    expect([refused.status, String(Reflect.get(refused.body, "error"))]).toEqual([
      403,
      `${view} needs the scope ${scope}, which ${rig.owner}.poor is not granted`,
    ]);
    const { bearer, claims } = await rig.bearer({ idToken, actor: "cli", view });
    expect(claims.act).toMatchObject({ owner: rig.owner, actor: "cli", view });
    const jwt = minted(await rig.connect(bearer));
    expect(jwt.profile).toBe(view);
    // Nothing of an agent's: no message, no presence, no durable.
    const agents = [...jwt.pub, ...jwt.sub].filter((subject) =>
      /^(\$JS\.|\$KV\.cotal_presence_main\.u_|cotal\.main\.(chat\.u_|live|take|inst\.\*\.|svc\.\*))/.test(subject),
    );
    expect(agents).toEqual([]);
  });

  test.each(plain)("%s: its scope withdrawn between exchange and connect denies the connect", async (view, scope) => {
    const rig = await viewRig();
    const row = await rig.grant("cli", { capabilities: [...EVERY_SCOPE] });
    const { bearer } = await rig.bearer({ idToken: await rig.token(), actor: "cli", view });
    expect(deniedAs(await rig.connect(bearer))).toBe("let in");
    await rig.authority.narrow(row, { capabilities: EVERY_SCOPE.filter((word) => word !== scope) });
    const writes = rig.ledger.writes.length;
    const { owner } = rig;
    expect(deniedAs(await rig.connect(bearer))).toBe(
      `permission-denied: ${view} needs the scope ${scope}, which ${owner}.cli is not granted`,
    );
    expect(rig.ledger.writes.length).toBe(writes);
    const again = await rig.ask({ idToken: await rig.token(), actor: "cli", view });
    expect(reasonOf(again)).toBe("403 permission-denied");
    // Without a view the same person is still an agent.
    const { bearer: plainBearer } = await rig.bearer({ idToken: await rig.token(), actor: "cli" });
    expect(minted(await rig.connect(plainBearer)).profile).toBe("agent");
  });

  test("its evidence names the view, and an agent's names none", async () => {
    const rig = await viewRig();
    await rig.grant("cli");
    const idToken = await rig.token();
    for (const view of ["admin", undefined]) {
      const { bearer } = await rig.bearer({ idToken, actor: "cli", ...(view === undefined ? {} : { view }) });
      await rig.connect(bearer);
    }
    const evidence = rig.ledger.keys("auth").filter((key) => key.startsWith("natkey."));
    expect(evidence.map((key) => rig.ledger.row("auth", key))).toMatchObject([{ view: "admin" }, { view: null }]);
  });

  test("a view makes no actor: who is not enrolled is told so, also where signing in would enrol", async () => {
    const rig = await viewRig({ policy: "auto", defaults: { capabilities: ["admin"] } });
    const idToken = await rig.token();
    expect(reasonOf(await rig.ask({ idToken, actor: "new", view: "admin" }))).toBe("403 permission-denied");
    expect(rig.ledger.writes).toEqual([]);
    await rig.bearer({ idToken, actor: "new" });
    expect((await rig.ask({ idToken, actor: "new", view: "admin" })).status).toBe(200);
  });

  test("the client's words about itself open nothing: the view of the bearer counts, signed by this space", async () => {
    const rig = await viewRig();
    await rig.grant("cli", { capabilities: [] });
    const { claims } = await rig.bearer({ idToken: await rig.token(), actor: "cli" });
    // Even one that the space's own key had signed is asked about again.
    const act = BearerAct.parse({ ...claims.act, view: "admin" });
    const forged = signBearer({ ...claims, act }, rig.signer);
    expect(deniedAs(await rig.connect(forged))).toMatch(/^permission-denied: admin needs the scope admin/);
  });

  test("a ledger that can't be read lets no view in, and says unavailable", async () => {
    const broken = { now: false };
    const away = (): Promise<never> => Promise.reject(new CotalError("unavailable", "the broker is away"));
    const rig = await viewRig({
      around: (store: LedgerStore) => ({
        ...store,
        read: (bucket, key) => (broken.now && key.startsWith("epgate.") ? away() : store.read(bucket, key)),
      }),
    });
    await rig.grant("cli");
    await rig.manager({ owner: HOST }, INSTANCE);
    const { bearer } = await rig.bearer({ idToken: await rig.token(), actor: "cli", view: "manager-caller" });
    broken.now = true;
    expect(deniedAs(await rig.connect(bearer))).toBe("unavailable: the broker is away");
    broken.now = false;
    expect(deniedAs(await rig.connect(bearer))).toBe("let in");
  });
});

describe("W10.10 each part of a request comes with its view, and each view with its part", () => {
  const PARTS = {
    managerInstanceId: INSTANCE,
    sessionGrant: { endpoint: "manager", sessionId: "s".repeat(26), epoch: 1, sig: "x" },
    transferWriter: TRANSFER,
  };
  const OWN: Readonly<Record<string, string>> = {
    managerInstanceId: "manager-caller",
    sessionGrant: "session-caller",
    transferWriter: "transfer-writer",
  };
  const VIEWS = [
    undefined,
    "admin",
    "purger",
    "channel-writer",
    "channel-purger",
    "deployer",
    "manager-caller",
    "session-caller",
    "transfer-writer",
    "dm-reader",
    "manager-service",
    "service-endpoint",
  ];
  const astray = Object.entries(PARTS).flatMap(([part, value]) =>
    VIEWS.filter((view) => view !== OWN[part]).map((view) => [part, view, { [part]: value }] as const),
  );

  test.each(astray)("W10.16 W10.18 W10.11 %s with the view %s", async (part, view, body) => {
    const rig = await viewRig();
    await rig.grant("cli");
    const writes = rig.ledger.writes.length;
    const request = { idToken: await rig.token(), actor: "cli", ...(view === undefined ? {} : { view }), ...body };
    const answer = await rig.ask(request);
    // Together with another view's own part it is the first that is told.
    expect(reasonOf(answer)).toBe("400 view-part");
    expect(String(Reflect.get(answer.body, "error"))).toContain(part);
    expect(rig.ledger.writes.length).toBe(writes);
  });

  test.each([
    ["session-caller", "sessionGrant"],
    ["transfer-writer", "transferWriter"],
  ])("W10.16 W10.18 %s without %s", async (view, part) => {
    const rig = await viewRig();
    await rig.grant("cli");
    const answer = await rig.ask({ idToken: await rig.token(), actor: "cli", view });
    expect(reasonOf(answer)).toBe("400 view-part");
    expect(String(Reflect.get(answer.body, "error"))).toContain(part);
  });

  test.each([
    ["manager-caller", { managerInstanceId: "a.b" }],
    ["manager-caller", { managerInstanceId: "*" }],
    ["manager-caller", { managerInstanceId: "m".repeat(25) }],
    ["manager-caller", { managerInstanceId: 7 }],
    ["session-caller", { sessionGrant: "text" }],
    ["session-caller", { sessionGrant: { ...PARTS.sessionGrant, endpoint: "a b" } }],
    ["session-caller", { sessionGrant: { ...PARTS.sessionGrant, sessionId: "*" } }],
    ["session-caller", { sessionGrant: { ...PARTS.sessionGrant, epoch: -1 } }],
    ["session-caller", { sessionGrant: { ...PARTS.sessionGrant, sig: "" } }],
    ["transfer-writer", { transferWriter: { ...TRANSFER, hex: "AB".repeat(32) } }],
    ["transfer-writer", { transferWriter: { ...TRANSFER, hex: "ab" } }],
    ["transfer-writer", { transferWriter: { ...TRANSFER, instanceId: ">" } }],
  ])("%s with a part of another form: %j", async (view, part) => {
    const rig = await viewRig();
    await rig.grant("cli");
    const answer = await rig.ask({ idToken: await rig.token(), actor: "cli", view, ...part });
    expect(reasonOf(answer)).toBe("400 malformed");
  });

  test("a part says nothing beyond its own fields", async () => {
    const rig = await viewRig();
    await rig.grant("cli");
    const transferWriter = { ...TRANSFER, owner: "u_x" };
    const answer = await rig.ask({ idToken: await rig.token(), actor: "cli", view: "transfer-writer", transferWriter });
    expect(reasonOf(answer)).toBe("400 unknown-field");
  });
});

describe("W10.33 a managed agent, by its secret", () => {
  async function withAgent(rig: ViewRig) {
    const { row, secret } = await rig.agent("robot", { capabilities: ["spawn"] });
    return { row, secret, body: { actor: "robot", owner: row.owner, secret } };
  }

  test("is itself, with its own lists, on either face", async () => {
    const rig = await viewRig();
    const { row, body } = await withAgent(rig);
    for (const face of [Loopback, Public]) {
      const { bearer, claims } = await rig.bearer(body, face);
      expect(claims.act).toMatchObject({ owner: row.owner, actor: "robot", lifecycleUid: row.lifecycleUid });
      expect(minted(await rig.connect(bearer)).profile).toBe("agent");
    }
  });

  test("whatever is wrong is answered in the same words, as probing, with nothing written", async () => {
    const rig = await viewRig();
    const { row, body } = await withAgent(rig);
    await rig.grant("cli");
    const writes = rig.ledger.writes.length;
    const wrong = [
      { ...body, secret: `${body.secret}x` },
      { ...body, secret: "x" },
      { ...body, actor: "nobody" },
      { ...body, actor: "cli" },
      { ...body, owner: `u_${"b".repeat(26)}` },
      // The digest that the ledger holds is no secret that opens.
      { ...body, secret: String(row.secretDigest) },
    ];
    const answers = await Promise.all(wrong.map((one) => rig.ask(one, Public)));
    expect(new Set(answers.map(({ status, body: said }) => JSON.stringify([status, said]))).size).toBe(1);
    expect(answers[0]).toMatchObject({ status: 401, body: { code: "unauthenticated" } });
    expect(rig.ledger.writes.length).toBe(writes);
    // And for a view the same: what it names is not looked at before the secret holds.
    const viewed = await rig.ask({ ...body, secret: "x", view: "manager-caller" }, Public);
    expect(viewed).toEqual(answers[0]);
  });

  test("wrong secrets spend the budget of the address; what is refused to somebody known does not", async () => {
    const rig = await viewRig();
    const { body } = await withAgent(rig);
    const ask = rig.askWith({ budget: createProbingBudget({ burst: 3, perMinute: 1 }, () => rig.clock.now) });
    for (let n = 0; n < 20; n += 1) expect((await ask({ ...body, view: "admin" })).status).toBe(403);
    const statuses: number[] = [];
    for (let n = 0; n < 4; n += 1) statuses.push((await ask({ ...body, secret: "wrong" })).status);
    expect(statuses).toEqual([401, 401, 401, 429]);
    expect((await ask(body)).status).toBe(200);
  });

  test("revoked, it is told so; a secret that was replaced opens nothing any more", async () => {
    const rig = await viewRig();
    const { row, body } = await withAgent(rig);
    const { secretDigest } = (await rig.agent("other")).row;
    const { bearer } = await rig.bearer(body);
    await rig.grant("robot", { kind: "managed", secretDigest });
    expect((await rig.ask(body)).status).toBe(401);
    await rig.grant("robot", { kind: "managed", secretDigest: row.secretDigest });
    expect((await rig.ask(body)).status).toBe(200);
    await rig.authority.revoke(row);
    const revoked = await rig.ask(body);
    expect(reasonOf(revoked)).toBe("403 permission-denied");
    expect(String(Reflect.get(revoked.body, "error"))).toContain("revoked");
    expect(deniedAs(await rig.connect(bearer))).toMatch(/^permission-denied: the grant .* is revoked/);
  });

  test("a digest in a person's row, which no grant writes, opens nothing", async () => {
    const rig = await viewRig();
    const { row, body } = await withAgent(rig);
    const person = await rig.grant("cli");
    rig.ledger.put("auth", `actor.${rig.owner}.cli`, { ...person, secretDigest: row.secretDigest });
    expect((await rig.ask({ ...body, actor: "cli" })).status).toBe(401);
  });

  test("a secret that is replaced while its bearer is made releases none", async () => {
    const rig = await viewRig();
    const { row, body } = await withAgent(rig);
    const { secretDigest } = (await rig.agent("other")).row;
    const ask = rig.askWith({
      authority: {
        ...rig.authority,
        proveAgent: async (p, secret) => {
          await rig.authority.proveAgent(p, secret);
          await rig.grant("robot", { kind: "managed", secretDigest });
        },
      },
    });
    const answer = await ask(body);
    expect(reasonOf(answer)).toBe("401 unauthenticated");
    expect(rig.ledger.keys("auth").filter((key) => key.startsWith(`cred.${row.lifecycleUid}.`))).toEqual([]);
  });

  test("nobody signs in under an agent's name, whoever its owner is", async () => {
    const rig = await viewRig();
    await withAgent(rig);
    const answer = await rig.ask({ idToken: await rig.token(), actor: "robot" });
    expect(reasonOf(answer)).toBe("403 permission-denied");
    expect(reasonOf(await rig.ask({ idToken: await rig.token(), actor: "robot", view: "admin" }))).toBe(
      "403 permission-denied",
    );
  });

  test("W10.09 a bearer of a managed agent with a person's view is denied at the connect, whatever its row says", async () => {
    const rig = await viewRig();
    const { row, secret } = await rig.agent("robot", { capabilities: [...EVERY_SCOPE] });
    const { claims } = await rig.bearer({ actor: "robot", owner: row.owner, secret });
    for (const view of ["admin", "purger", "channel-writer", "channel-purger", "deployer", "dm-reader"] as const) {
      const act = BearerAct.parse({ ...claims.act, view });
      const verdict = await rig.connect(signBearer({ ...claims, act }, rig.signer));
      expect(deniedAs(verdict)).toBe(
        `permission-denied: ${row.owner}.robot is a managed agent, and ${view} is for people`,
      );
    }
  });

  test.each([
    [{ secret: "" }, "400 malformed"],
    [{ secret: "x".repeat(513) }, "400 malformed"],
    [{ owner: "local" }, "400 malformed"],
    [{ owner: "u_short" }, "400 malformed"],
    [{ owner: undefined }, "400 malformed"],
    [{ idToken: "x.y.z" }, "400 unknown-field"],
    [{ lifecycleUid: "a".repeat(26) }, "400 unknown-field"],
  ])("a request of another form: %j", async (over, reason) => {
    const rig = await viewRig();
    const { body } = await withAgent(rig);
    expect(reasonOf(await rig.ask({ ...body, ...over }))).toBe(reason);
  });

  test("no answer and no event repeats the secret", async () => {
    const rig = await viewRig();
    const { body, secret } = await withAgent(rig);
    const answers = [
      await rig.ask(body),
      await rig.ask({ ...body, view: secret }),
      await rig.ask({ ...body, view: "admin" }),
      await rig.ask({ ...body, actor: secret }),
      await rig.ask({ ...body, extra: secret }),
      await rig.ask({ ...body, space: secret }),
    ];
    expect(answers.map(({ status }) => status)).toEqual([200, 400, 403, 401, 400, 400]);
    expect(JSON.stringify([answers, rig.events])).not.toContain(secret);
  });
});

describe("W10.16 W10.18 W10.11 claims of a bearer that exclude each other", () => {
  const session = { endpoint: "manager", sessionId: "s".repeat(26), epoch: 1, exp: 2_000_000_000 };
  const claims: Readonly<Record<string, object>> = {
    managerInstanceId: { managerInstanceId: INSTANCE },
    session: { session },
    transferWriter: { transferWriter: TRANSFER },
  };
  const own: Readonly<Record<string, string>> = {
    "manager-caller": "managerInstanceId",
    "session-caller": "session",
    "transfer-writer": "transferWriter",
  };
  const views = ["admin", "purger", "channel-writer", "channel-purger", "deployer", "dm-reader", ...Object.keys(own)];
  const cases = [undefined, ...views].flatMap((view) => {
    const wanted = view === undefined ? undefined : own[view];
    const stray = Object.keys(claims).filter((name) => name !== wanted);
    return [
      ...stray.map((name) => ({ view, with: wanted === undefined ? [name] : [wanted, name] })),
      ...stray.map((name) => ({ view, with: [name] })),
      ...(wanted === undefined ? [] : [{ view, with: [] }]),
    ];
  });

  test.each(cases)("$view with $with is no bearer", async ({ view, with: names }) => {
    const rig = await viewRig();
    await rig.grant("cli");
    const { claims: good } = await rig.bearer({ idToken: await rig.token(), actor: "cli" });
    const parts: object = Object.fromEntries(names.flatMap((name) => Object.entries(claims[name] ?? {})));
    const act = { ...good.act, ...(view === undefined ? {} : { view }), ...parts };
    expect(BearerAct.safeParse(act).success).toBe(false);
    // As if the key had signed it: signed by hand, past our own check.
    const [head = "", body = ""] = signBearer(good, rig.signer).split(".");
    const forged = Buffer.from(JSON.stringify({ ...good, act })).toString("base64url");
    const signature = Buffer.from(rig.signer.sign(Buffer.from(`${head}.${forged}`))).toString("base64url");
    expect(body).not.toBe(forged);
    const scope = { issuer: rig.issuer, audience: rig.audience, keys: [rig.signer], nowSeconds: good.iat };
    expect(verifyBearer(`${head}.${forged}.${signature}`, scope)).toEqual({ ok: false, fault: BearerFault.Claimless });
  });

  test("each view with its own claim is one, and so is none with none", async () => {
    const rig = await viewRig();
    await rig.grant("cli");
    const { claims: good } = await rig.bearer({ idToken: await rig.token(), actor: "cli" });
    for (const view of [undefined, ...views]) {
      const name = view === undefined ? undefined : own[view];
      const act = { ...good.act, ...(view === undefined ? {} : { view }), ...(name === undefined ? {} : claims[name]) };
      expect([view, BearerAct.safeParse(act).success]).toEqual([view, true]);
    }
    for (const view of ["manager-service", "service-endpoint", "agent", "junk", null]) {
      expect([view, BearerAct.safeParse({ ...good.act, view }).success]).toEqual([view, false]);
    }
  });
});
