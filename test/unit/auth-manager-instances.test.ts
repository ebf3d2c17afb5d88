/** `POST /manager-instances` (§10): whose managers it lists, what it refuses, and what a broken ledger comes to. */
import { beforeEach, describe, expect, test } from "vitest";
import { managerInstances } from "../../services/auth/edge/manager-instances.ts";
import { createProbingBudget } from "../../services/auth/edge/probing-budget.ts";
import type { Answer } from "../../services/auth/edge/refusals.ts";
import { CotalError, ErrorCode } from "../../shared/protocol/base/errors.ts";
import { ManagerInstancesAnswer } from "../../shared/protocol/endpoint/exchange-shapes.ts";
import { Face } from "../../shared/protocol/endpoint/views.ts";
import { endpointKey } from "../../shared/protocol/ledger/endpoint-rows.ts";
import { HOST, type ViewRig, reasonOf, viewRig } from "../support/view-rig.ts";

const OTHER = `u_${"b".repeat(26)}`;
let rig: ViewRig;
let broken: Error | undefined;
/** What a look at the ledger waits for. */
let held: Promise<void>;

beforeEach(async () => {
  broken = undefined;
  held = Promise.resolve();
  rig = await viewRig({
    around: (store) => ({
      ...store,
      keys: async (bucket, filter) => {
        await held;
        return broken === undefined ? store.keys(bucket, filter) : Promise.reject(broken);
      },
    }),
  });
});

function listing(probes = 100) {
  const { space, authority, ownerSecret, idp, clock } = rig;
  const budget = createProbingBudget({ burst: probes, perMinute: 1 }, () => clock.now);
  const handle = managerInstances({ space, ownerSecret, idp, authority, budget });
  return async (body: unknown, face: Face = Face.Loopback): Promise<Answer> =>
    handle(body, { face, address: "192.0.2.7" });
}

const body = async (claims: object = {}) => ({ space: "main", idToken: await rig.token({ ...claims }) });
const managersIn = (answer: Answer) => ManagerInstancesAnswer.parse(answer.body).managers;

describe("W10.15 what is listed", () => {
  test("W10.15 every manager of the owner, ready or not, with the reason; nobody else's and not the host's", async () => {
    const ready = await rig.manager({ owner: rig.owner, epoch: 3 });
    const frozen = await rig.manager({
      owner: rig.owner,
      gate: { state: "frozen", op: { opId: "op1", kind: "registration" } },
    });
    await rig.manager({ owner: OTHER });
    await rig.manager({ owner: HOST });
    for (const face of [Face.Loopback, Face.Public]) {
      const answer = await listing()(await body(), face);
      expect(answer.status).toBe(200);
      const found = managersIn(answer).toSorted((a, b) => Number(b.ready) - Number(a.ready));
      expect(found).toEqual([
        { instanceId: ready, epoch: 3, ready: true },
        { instanceId: frozen, epoch: 1, ready: false, reason: "its issuance gate is frozen" },
      ]);
    }
  });

  test("W10.15 nobody's list is empty, and that is an answer", async () => {
    expect(managersIn(await listing()(await body({ sub: "another" })))).toEqual([]);
  });

  test("W10.15 a read that fails is unavailable, never an empty list", async () => {
    await rig.manager({ owner: rig.owner });
    broken = new CotalError(ErrorCode.Unavailable, "the store can't be read");
    const answer = await listing()(await body());
    expect(answer.status).toBe(503);
    expect(answer.body).toMatchObject({ code: "unavailable" });
    expect(answer.body).not.toHaveProperty("managers");
  });

  test("W10.15 a row that does not parse is told, never skipped", async () => {
    const id = await rig.manager({ owner: rig.owner });
    rig.ledger.put("auth", endpointKey.gate("manager", id), { state: "open", surprise: true });
    const answer = await listing()(await body());
    expect(answer.status).toBe(409);
    expect(JSON.stringify(answer.body)).toContain(endpointKey.gate("manager", id));
  });

  test("what fails inside is left to the face, which tells its log", async () => {
    broken = new TypeError("a fault of ours");
    await expect(listing()(await body())).rejects.toThrow("a fault of ours");
  });

  test("more of one person than are one's share, and more than are served at all", async () => {
    const ask = listing();
    const mine = await body();
    const people = await Promise.all(Array.from({ length: 5 }, (_, at) => body({ sub: `another ${at}` })));
    let goOn = (): void => undefined;
    held = new Promise((resolve) => (goOn = resolve));
    const reasons: string[] = [];
    const asked = async (of: object): Promise<number> => {
      const answer = await ask(of);
      if (answer.status !== 200) reasons.push(reasonOf(answer));
      return answer.status;
    };
    const flood = Array.from({ length: 20 }, () => asked(mine));
    await expect.poll(() => reasons).toEqual(Array<string>(12).fill("429 busy-with-you"));
    const others = people.flatMap((one) => Array.from({ length: 8 }, () => asked(one)));
    await expect.poll(() => reasons.slice(12)).toEqual(Array<string>(16).fill("503 busy"));
    goOn();
    const served = (await Promise.all([...flood, ...others])).filter((status) => status === 200);
    expect(served).toHaveLength(32);
    expect((await ask(mine)).status).toBe(200);
  });

  test("nothing is written by asking", async () => {
    await rig.manager({ owner: rig.owner });
    const before = rig.ledger.writes.length;
    await listing()(await body());
    expect(rig.ledger.writes.length).toBe(before);
  });
});

describe("what is refused", () => {
  test.each([
    ["no body", undefined],
    ["another space", { space: "lab", idToken: "x" }],
    ["no proof", { space: "main" }],
    ["a proof that is no text", { space: "main", idToken: 7 }],
  ])("%s", async (_, asked) => expect(reasonOf(await listing()(asked))).toBe("400 malformed"));

  test.each(["owner", "actor", "view", "managerInstanceId"])("W10.05 a request that names %s", async (field) => {
    expect(reasonOf(await listing()({ ...(await body()), [field]: "x" }))).toBe("400 malformed");
  });

  test("W10.20 W10.32 a proof for another purpose, of another audience, expired, or of nobody", async () => {
    const past = Math.floor(rig.clock.now / 1000) - 60;
    const ask = listing();
    expect(reasonOf(await ask(await body({ purpose: "dm-reader" })))).toBe("401 proof-purpose");
    expect(reasonOf(await ask(await body({ purpose: "" })))).toBe("401 proof-purpose");
    expect(reasonOf(await ask(await body({ aud: "else" })))).toBe("401 proof-wrong-audience");
    expect(reasonOf(await ask(await body({ iss: "https://else.test" })))).toBe("401 proof-wrong-issuer");
    expect(reasonOf(await ask(await body({ iat: past - 60, exp: past })))).toBe("401 proof-expired");
    expect(reasonOf(await ask({ space: "main", idToken: "a.b.c" }))).toBe("401 proof-malformed");
  });

  test("whoever keeps being refused is told to wait; a good proof from the same address is served", async () => {
    const ask = listing(2);
    await ask(undefined);
    await ask(undefined);
    expect(reasonOf(await ask(undefined))).toBe("429 refused-too-often");
    expect((await ask(await body())).status).toBe(200);
  });
});
