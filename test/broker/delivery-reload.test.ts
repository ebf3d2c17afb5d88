/** `reload-creds` (supplement F): renewed credential files are taken up at once, with a real broker. */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type BuiltProfile, Life, type ScopeOf } from "../../shared/grants/matrix.ts";
import { dotForm } from "../../shared/protocol/base/principals.ts";
import { MembersAnswer, ReloadCredsAnswer } from "../../shared/protocol/endpoint/delivery-shapes.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { formatCreds, parseCreds } from "../../shared/trust/creds.ts";
import { DeliveryFile, DeliverySpaceFile } from "../../shared/trust/delivery-folder.ts";
import { trustPaths } from "../../shared/trust/folder.ts";
import { mintUser } from "../../shared/trust/jwt.ts";
import { newKey } from "../../shared/trust/keys.ts";
import {
  type BarrierCaller,
  type DeliveryService,
  barrierCaller,
  startDeliveryService,
} from "../support/delivery-service.ts";
import { accountKeys, freshHolder } from "../support/holders.ts";
import { failure } from "../support/refusal.ts";
import { type TestSpace, startSpace } from "../support/space.ts";

let space: TestSpace;
let delivery: DeliveryService;
let barrier: BarrierCaller;

beforeAll(async () => {
  space = await startSpace({ delivery: false });
  delivery = startDeliveryService(space, () => ({ COTAL_DELIVERY_MEMBERSHIP_SECONDS: "1" }));
  await delivery.ready();
  barrier = await barrierCaller(space, "auth-server");
}, 180_000);
afterAll(async () => {
  await delivery.kill("SIGTERM");
  await space.stop();
});

const nowSeconds = (): number => Math.floor(Date.now() / 1000);
const pathOf = (file: string): string => join(trustPaths(space.state).delivery("main"), file);
const accounts = () => DeliverySpaceFile.parse(JSON.parse(readFileSync(pathOf(DeliveryFile.Space), "utf8")));

/** Another credential in place of the one in the file: of the same lifecycle and inbox, unless told otherwise. */
async function renew<Name extends BuiltProfile>(
  file: string,
  profile: Name,
  scopeOf: (own: ReturnType<typeof ownOf>) => ScopeOf<Name>,
  own = ownOf(file),
): Promise<number> {
  const user = newKey("user");
  const expires = nowSeconds() + Life.Static + 77;
  const { jwt } = await mintUser({
    profile,
    scope: scopeOf(own),
    account: "system",
    ...accountKeys(space, "main", "system"),
    userKey: user.publicKey,
    expires,
    limits: { subs: -1, payload: -1 },
  });
  writeFileSync(pathOf(file), formatCreds(jwt, user));
  return expires;
}
function ownOf(file: string) {
  const { view } = parseCreds(readFileSync(pathOf(file), "utf8"));
  return { space: "main", holder: { principal: view.principal, uid: view.uid }, inboxNonce: view.inboxNonce };
}
const reload = async (by: BarrierCaller = barrier): Promise<ReloadCredsAnswer["credentials"]> => {
  const { data } = await by.call(EndpointName.Delivery, "reload-creds", {}, { deadlineMs: 20_000 });
  return ReloadCredsAnswer.parse(data).credentials;
};
const renewEvictor = () => {
  const { front, store, auth } = accounts();
  return renew(DeliveryFile.Evictor, "connection-evictor", (own) => ({ ...own, spaceAccounts: [front, store, auth] }));
};
const nobody = () => ({ owner: space.operator().view.principal.owner, actor: "nobody" });

test("W8.19 without the observer's file everything else is served, and the feed goes on when it is back", async () => {
  const good = readFileSync(pathOf(DeliveryFile.Observer), "utf8");
  await delivery.kill("SIGTERM");
  writeFileSync(pathOf(DeliveryFile.Observer), "");
  delivery.restart();
  await delivery.ready();
  expect(await barrier.liveness(nobody())).toMatchObject([{ state: "gone" }]);
  await expect.poll(() => delivery.log(), { timeout: 45_000 }).toContain("the membership feed could not be written");
  expect(await reload()).toContainEqual({ profile: "membership-observer", taken: false, expires: null });
  const watcher = await space.mint({ actor: "waits", profile: "observer" });
  const youngerThan = async (ms: number) => {
    const asked = space.call("members", { channel: ">" }, { as: watcher, endpoint: EndpointName.Delivery });
    const { view } = MembersAnswer.parse(await asked);
    return view.state === "seen" && view.ageMs < ms;
  };
  await expect.poll(() => youngerThan(5000), { timeout: 45_000 }).toBe(false);
  writeFileSync(pathOf(DeliveryFile.Observer), good);
  await expect.poll(() => youngerThan(5000), { timeout: 45_000 }).toBe(true);
}, 180_000);

describe("PF.04 PF.05 reload-creds", () => {
  test("what is in use already stays; what was renewed is taken up, and works", async () => {
    expect((await reload()).map(({ profile, taken }) => [profile, taken])).toEqual([
      ["connection-evictor", false],
      ["membership-observer", false],
    ]);
    const evictorEnd = await renewEvictor();
    expect(await reload()).toEqual([
      { profile: "connection-evictor", taken: true, expires: evictorEnd },
      expect.objectContaining({ profile: "membership-observer", taken: false }),
    ]);
    expect(await barrier.liveness(nobody())).toMatchObject([{ state: "gone" }]);
    const { front: frontAccount } = accounts();
    const observerEnd = await renew(DeliveryFile.Observer, "membership-observer", (own) => ({ ...own, frontAccount }));
    expect(await reload()).toEqual([
      { profile: "connection-evictor", taken: false, expires: evictorEnd },
      { profile: "membership-observer", taken: true, expires: observerEnd },
    ]);
    const silent = await space.mint({ actor: "silent", subscribe: ["quiet"] });
    const nc = await space.connect(silent);
    nc.subscribe("cotal.main.chat.*.*.quiet");
    const watcher = await space.mint({ actor: "watcher", profile: "observer" });
    const hears = async () => {
      const asked = space.call("members", { channel: "quiet" }, { as: watcher, endpoint: EndpointName.Delivery });
      return MembersAnswer.parse(await asked).members.map(({ id }) => id);
    };
    await expect.poll(hears, { timeout: 45_000 }).toEqual([dotForm(silent.view.principal)]);
  }, 180_000);

  test("a file that is wrong, or of another inbox, changes nothing and is named", async () => {
    const good = readFileSync(pathOf(DeliveryFile.Observer), "utf8");
    const { front: frontAccount } = accounts();
    const others = { ...freshHolder(nobody().owner, "delivery"), space: "main" };
    await renewEvictor();
    for (const write of [
      async () => writeFileSync(pathOf(DeliveryFile.Observer), "-----BEGIN NATS USER JWT-----\nsecret\n"),
      () => renew(DeliveryFile.Observer, "membership-observer", () => ({ ...others, frontAccount }), others),
    ]) {
      await write();
      const refused = await failure(reload());
      expect(refused).toMatchObject({ code: "failed-precondition", outcome: "not-executed" });
      expect(refused.message).toMatch(/membership-observer/);
      expect(refused.message).not.toMatch(/secret|BEGIN/);
    }
    expect(await barrier.liveness(nobody())).toMatchObject([{ state: "gone" }]);
    writeFileSync(pathOf(DeliveryFile.Observer), good);
    // The good one beside it was left alone, and is taken up now.
    expect((await reload()).map(({ taken }) => taken)).toEqual([true, false]);
  }, 180_000);

  test("nobody else may ask: not even the provisioner, which may ask for the other two", async () => {
    const provisioner = await barrierCaller(space, "provisioner");
    expect((await failure(reload(provisioner))).code).toBe("permission-denied");
    for (const profile of ["agent", "observer", "admin", "probe"] as const) {
      const as = await space.mint({ actor: `asks_${profile}`, profile });
      const asked = space.call("reload-creds", {}, { as, endpoint: EndpointName.Delivery, deadlineMs: 5000 });
      expect((await failure(asked)).code).toBe("permission-denied");
    }
    const asked = space.call("reload-creds", {}, { endpoint: EndpointName.Delivery, deadlineMs: 5000 });
    expect((await failure(asked)).code).toBe("permission-denied");
  }, 120_000);
});
