/**
 * The eviction oracle where people sign in: its rows come from the auth service, and whom the callout has let
 * in is seen by the name of the principal and ended like everybody else.
 */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Connection } from "../../shared/broker/connect.ts";
import { allRows } from "../../shared/broker/reads.ts";
import { AuthCommand } from "../../shared/grants/commands.ts";
import { spaceNames } from "../../shared/protocol/base/names.ts";
import { type Principal, dotForm } from "../../shared/protocol/base/principals.ts";
import { ActorRevokeAnswer } from "../../shared/protocol/endpoint/auth-shapes.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { EndpointsAnswer } from "../../shared/protocol/endpoint/reads-shapes.ts";
import { CredentialRow } from "../../shared/protocol/ledger/rows.ts";
import { type AuthService, startAuthService } from "../support/auth-service.ts";
import {
  type BarrierCaller,
  type DeliveryService,
  barrierCaller,
  startDeliveryService,
} from "../support/delivery-service.ts";
import { type TestSpace, startSpace } from "../support/space.ts";

let space: TestSpace;
let auth: AuthService;
let delivery: DeliveryService;
let barrier: BarrierCaller;

beforeAll(async () => {
  space = await startSpace({ auth: "user" });
  // It starts first, and waits for who writes the ledger.
  delivery = startDeliveryService(space);
  auth = await startAuthService(space);
  await delivery.ready();
  barrier = await barrierCaller(space, "auth-server");
}, 60_000);
afterAll(async () => {
  await delivery.kill("SIGTERM");
  await auth.stop();
  await space.stop();
});

async function signedIn(actor: string): Promise<{ readonly who: Principal; readonly connection: Connection }> {
  const answer = await auth.signIn(actor);
  return { who: { owner: answer.owner, actor }, connection: await auth.connect(answer) };
}

// A proof waits for seconds of quiet: they wait together, each for somebody of its own.
describe.concurrent("W131.07 W131.10 PF.04 eviction of who signed in", () => {
  test("one whose bearer works comes back, and is live; its neighbour is not touched", async () => {
    const alice = await signedIn("alice");
    const bob = await signedIn("bob");
    const [verdict] = await barrier.evict(alice.who);
    expect(verdict).toMatchObject({ ...alice.who, state: "live" });
    expect(verdict?.closed).toBeGreaterThanOrEqual(1);
    expect(bob.connection.isUp()).toBe(true);
    expect(await barrier.liveness(bob.who)).toMatchObject([{ state: "live", found: 1 }]);
  }, 40_000);

  test("W10.08 W131.10 a revocation ends what is connected, proves it, and its lifecycle is over", async () => {
    const carol = await signedIn("carol");
    const asked = { endpoint: EndpointName.Auth, deadlineMs: 40_000 };
    const revoked = ActorRevokeAnswer.parse(await space.call(AuthCommand.ActorRevoke, carol.who, asked));
    expect(revoked.connections).toEqual({ state: "none" });
    expect(revoked).not.toHaveProperty("remains");
    await carol.connection.closed;
    expect(await barrier.liveness(carol.who)).toEqual([{ ...carol.who, state: "gone", found: 0, closed: 0 }]);
  }, 40_000);
});

describe("the daemon", () => {
  test("W131.02 W131L.01 the auth service entered each of its credentials", async () => {
    const store = await space.store();
    const me = { owner: space.operator().view.principal.owner, actor: "delivery" };
    const states: string[] = [];
    for await (const row of allRows(store, spaceNames("main").bucket.auth, {
      filter: "cred.>",
      limit: 100,
      via: "leader",
    })) {
      if (row.kind !== "value") continue;
      const parsed = CredentialRow.parse(JSON.parse(new TextDecoder().decode(row.data)));
      if (parsed.holderPrincipal === dotForm(me)) states.push(parsed.state);
    }
    expect(states).toEqual(Array.from({ length: 4 }, () => "active"));
  });

  test("PA.08 it is listed beside the other two", async () => {
    const listed = async () =>
      new Set(
        EndpointsAnswer.parse(await space.call("endpoints", {}))
          .endpoints.filter(({ state }) => state === "ready")
          .map(({ endpoint }) => endpoint),
      );
    await expect.poll(listed, { timeout: 20_000 }).toEqual(new Set(["auth", "delivery", "provisioner"]));
  });
});
