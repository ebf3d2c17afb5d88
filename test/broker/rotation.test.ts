/** Signing keys are replaced while the space is served: before, between and after, each credential counts as it should. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openConnection } from "../../shared/broker/connect.ts";
import { inboxPrefix } from "../../shared/protocol/base/broker-subjects.ts";
import { cli } from "../support/cli.ts";
import { failure } from "../support/refusal.ts";
import { type Minted, type TestSpace, startSpace } from "../support/space.ts";

let space: TestSpace;
beforeAll(async () => {
  space = await startSpace();
}, 240_000);
afterAll(() => space?.stop());

const signer = (): string =>
  readFileSync(join(space.state, "spaces", "main", "provisioner", "front-signer.nk"), "utf8");
const keys = async (what: string) => {
  const ran = await cli(["keys", what, "--state", space.state, "--server", space.url, "--json"]);
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

describe("A.07 rotation of signing keys", () => {
  test("former and new keys both count until it is finished, and then the new ones alone", async () => {
    const old = await space.mint({ actor: "old", subscribe: ["general"] });
    const before = signer();
    expect(await keys("rotate")).toMatchObject({ kind: "rotated", keys: 4 });
    expect(signer()).not.toBe(before);
    await enters(old);
    // A daemon that was not restarted signs with its former keys, and is heard.
    await enters(await space.mint({ actor: "between", subscribe: ["general"] }));
    await space.provisioner.kill("SIGTERM");
    await space.provisioner.restart();
    const fresh = await space.mint({ actor: "fresh", subscribe: ["general"] });
    await enters(fresh);
    await enters(old);
    expect(await keys("finish")).toMatchObject({ kind: "rotation-finished", keys: 4 });
    expect(await failure(enters(old))).toMatchObject({ code: "unauthenticated" });
    await enters(fresh);
    await enters(await space.mint({ actor: "later", subscribe: ["general"] }));
    expect(await keys("finish")).toMatchObject({ keys: 0 });
  }, 120_000);
});
