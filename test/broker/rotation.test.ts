/** Signing keys are replaced while the space is served: before, between and after, each credential counts as it should. */
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openConnection } from "../../shared/broker/connect.ts";
import { inboxPrefix } from "../../shared/protocol/base/broker-subjects.ts";
import { cli } from "../support/cli.ts";
import { failure } from "../support/refusal.ts";
import { AuthFile, former, next } from "../../shared/trust/auth-folder.ts";
import { type AuthService, startAuthService } from "../support/auth-service.ts";
import { type Minted, type TestSpace, startSpace } from "../support/space.ts";

let space: TestSpace;
let people: TestSpace;
let auth: AuthService;
beforeAll(async () => {
  [space, people] = await Promise.all([startSpace(), startSpace({ auth: "user", delivery: false })]);
  auth = await startAuthService(people);
}, 240_000);
afterAll(async () => {
  await auth?.stop();
  await Promise.all([space?.stop(), people?.stop()]);
});

const signer = (): string =>
  readFileSync(join(space.state, "spaces", "main", "provisioner", "front-signer.nk"), "utf8");
const keys = async (what: string, { state, url } = space) => {
  const ran = await cli(["keys", what, "--state", state, "--server", url, "--json"]);
  if (ran.code !== 0) throw new Error(`${ran.out} ${ran.err}`);
  return ran.items()[0];
};

/** Is the credential let in? */
async function enters({ jwt, sign, view }: Minted): Promise<void> {
  const connection = await openConnection({
    servers: [space.url],
    authenticator: { jwt: () => jwt, sign },
    inboxPrefix: inboxPrefix(view.uid, view.inboxNonce),
    name: "test",
    reconnect: { kind: "bounded", attempts: 1 },
  });
  await connection.close();
}

/** The delivery service serves, through front, and writes, into the store. */
async function joins(as: Minted): Promise<void> {
  const membership = await space.call("durable-join", { channel: "general", cursor: 0 }, { as, endpoint: "delivery" });
  expect(membership).toMatchObject({ state: "joined" });
}

// Each in a space of its own.
describe.concurrent("A.07 rotation of signing keys", () => {
  test("former and new keys both count until it is finished, and then the new ones alone", async () => {
    const old = await space.mint({ actor: "old", subscribe: ["general"] });
    const before = signer();
    expect(await keys("rotate")).toMatchObject({ kind: "rotated", keys: 4 });
    expect(signer()).not.toBe(before);
    await enters(old);
    // A daemon that was not restarted signs with its former keys, and is heard.
    const between = await space.mint({ actor: "between", subscribe: ["general"] });
    await enters(between);
    await joins(between);
    await space.provisioner.kill("SIGTERM");
    await space.provisioner.restart();
    const fresh = await space.mint({ actor: "fresh", subscribe: ["general"] });
    await enters(fresh);
    await enters(old);
    expect(await keys("finish")).toMatchObject({ kind: "rotation-finished", keys: 4 });
    expect(await failure(enters(old))).toMatchObject({ code: "unauthenticated" });
    await enters(fresh);
    const later = await space.mint({ actor: "later", subscribe: ["general"] });
    await enters(later);
    // The delivery service was not restarted at all: its connections end, and it comes back with its new keys.
    await expect.poll(() => joins(later).then(() => "joined", String), { timeout: 60_000 }).toBe("joined");
    expect(await keys("finish")).toMatchObject({ keys: 0 });
  }, 240_000);

  test("A.07 the callout's seal and the bearers' key change hands while people come and go", async () => {
    const own = (file: string): string => join(people.state, "spaces", "main", "auth", file);
    const [curve, bearerKey] = [AuthFile.Curve, AuthFile.Bearer].map((file) => readFileSync(own(file), "utf8"));
    const restarted = async (): Promise<void> => {
      await auth.kill("SIGTERM");
      await auth.restart();
    };
    const before = await auth.signIn("early");
    expect(await keys("rotate", people)).toMatchObject({ kind: "rotated", keys: 7 });
    await auth.connect(before);
    await restarted();
    await auth.connect(before);
    const between = await auth.signIn("between");
    expect(kidOf(between.bearer)).toBe(kidOf(before.bearer));
    expect(await keys("finish", people)).toMatchObject({ kind: "rotation-finished", keys: 7, switched: 2 });
    // The broker seals for the new curve key from now on, and this process knows it already.
    await auth.connect(between);
    await restarted();
    const after = await auth.signIn("late");
    await auth.connect(after);
    // A bearer of the former key counts until it ends; its sentinel was signed by a former signing key.
    await auth.connect({ ...before, sentinel: after.sentinel });
    // Refused, and not silence: whoever comes with it fetches the next one at once.
    expect(await failure(auth.connect(before))).toMatchObject({ code: "unauthenticated" });
    expect(kidOf(after.bearer)).not.toBe(kidOf(before.bearer));
    expect(readFileSync(own(AuthFile.Curve), "utf8")).not.toBe(curve);
    // What could sign or open for the former ones is gone.
    expect(
      [next(AuthFile.Curve), former(AuthFile.Curve), next(AuthFile.Bearer)].filter((file) => existsSync(own(file))),
    ).toEqual([]);
    const { d } = JSON.parse(bearerKey ?? "") as { d: string };
    expect(readFileSync(own(former(AuthFile.Bearer)), "utf8")).not.toContain(d);
    expect(await keys("finish", people)).toMatchObject({ keys: 0, switched: 0 });
  }, 120_000);
});

const kidOf = (bearer: string): unknown => Reflect.get(decodeHead(bearer), "kid");
const decodeHead = (bearer: string): object =>
  JSON.parse(Buffer.from(bearer.split(".")[0] ?? "", "base64url").toString()) as object;
