/**
 * A predecessor that does not heed a takeover (§13.1): a serve credential in the hands of this test, under
 * which it serves by hand for as long as the broker lets it. What is in the ledger of it, that it is found
 * among the connections by the name in its row, and that nothing of it is heard once its successor serves.
 */
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { leaderLast } from "../../shared/broker/reads.ts";
import { kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { bucketStream, spaceNames } from "../../shared/protocol/base/names.ts";
import { compileContract } from "../../shared/protocol/contract/contract.ts";
import { describeFor } from "../../shared/protocol/contract/descriptor.ts";
import { createValidators } from "../../shared/protocol/contract/validators.ts";
import { deriveReply, endpointSubjects, parseRequestSubject } from "../../shared/protocol/endpoint/grammar.ts";
import { RegisterAnswer } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import { EndpointCredentialRow, EndpointGateRow, endpointKey } from "../../shared/protocol/ledger/endpoint-rows.ts";
import { readUserJwt } from "../../shared/trust/jwt.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { type BarrierCaller, barrierCaller } from "../support/delivery-service.ts";
import { CLOCK, ENDPOINT, clockService, expectTakenOver } from "../support/clock-endpoint.ts";
import { type DeliveryWorld, startDeliveryWorld } from "../support/delivery-world.ts";
import { frontRoot } from "../support/holders.ts";
import { tap } from "../support/probe.ts";
import type { Sessions } from "../support/sessions.ts";
import type { Minted, TestSpace } from "../support/space.ts";
import { until } from "../support/until.ts";

// A predecessor's credential has to come to its end.
vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

const contract = compileContract([CLOCK], createValidators());
const bucket = spaceNames("main").bucket.auth;

let world: DeliveryWorld;
let space: TestSpace;
let sessions: Sessions;
let barrier: BarrierCaller;
let service: Minted;

beforeAll(async () => {
  world = await startDeliveryWorld({ env: { COTAL_PROVISIONER_SERVE_SECONDS: "5" } });
  ({ space, sessions } = world);
  barrier = await barrierCaller(space, "auth-server");
  service = await clockService(space);
});
afterAll(() => world.stop());

type Stubborn = RegisterAnswer & { readonly userKey: string; readonly nc: NatsConnection; readonly heard: string[] };

/** Registers, and answers whatever it hears by itself: it renews nothing, and stops for nobody. */
async function stubborn(): Promise<Stubborn> {
  const user = newKey("user");
  const args = {
    endpoint: ENDPOINT,
    userKey: user.publicKey,
    clusterDigests: contract.clusterDigests,
    artifacts: contract.artifacts.map(({ text }) => text),
  };
  const answer = RegisterAnswer.parse(await space.call("register", args, { as: service }));
  const { instanceId, epoch, credential } = answer;
  const jwt = credential?.jwt ?? "";
  const nc = await space.connect({ view: readUserJwt(jwt), jwt, sign: user.sign });
  const heard: string[] = [];
  const { registrationRevision } = answer;
  const described = describeFor(
    { endpoint: ENDPOINT, registrationRevision, contract, publicDescriptor: true },
    undefined,
  );
  const rails = endpointSubjects("main");
  for (const { subject, queue } of ["now", "describe"].flatMap((name) => rails.serve(ENDPOINT, instanceId, name))) {
    nc.subscribe(subject, {
      ...(queue === undefined ? {} : { queue }),
      callback: (_, message) => {
        const asked = parseRequestSubject(message.subject);
        if (asked === undefined) return;
        heard.push(message.subject);
        const { id } = message.json<{ readonly id: string }>();
        const data = asked.command === "now" ? { by: "old" } : described;
        nc.publish(deriveReply(asked, { instanceId, epoch }), JSON.stringify({ v: 1, id, ok: true, data }));
      },
    });
  }
  await nc.flush();
  return { ...answer, userKey: user.publicKey, nc, heard };
}

async function rowAt(key: string): Promise<unknown> {
  const row = await leaderLast(await space.store(), bucketStream(bucket), kvKey(bucket, key));
  return row === undefined ? undefined : JSON.parse(new TextDecoder().decode(row.data));
}

test("W131.07 W131L.08 W132.12 it is found and fenced: once its successor serves, it hears nothing, and nothing of it is heard", async () => {
  const old = await stubborn();
  const caller = await sessions.minted({ actor: "caller", owner: "other", capabilities: [ENDPOINT] });
  const { instanceId } = old;
  expect(await caller.endpoints.call(ENDPOINT, "now", undefined)).toMatchObject({ data: { by: "old" }, epoch: 1 });

  // Its rows say whose it is, and under that name its connection is found.
  const gate = EndpointGateRow.parse(await rowAt(endpointKey.gate(ENDPOINT, instanceId)));
  const cred = EndpointCredentialRow.parse(await rowAt(endpointKey.cred(ENDPOINT, instanceId, old.userKey)));
  const owner = service.view.principal.owner;
  const holder = { owner, actor: `svc_${instanceId}` };
  expect(gate).toMatchObject({ state: "open", processEpoch: 1, registrationRevision: old.registrationRevision });
  expect(cred).toMatchObject({ state: "active", holderPrincipal: `${owner}.svc_${instanceId}`, processEpoch: 1 });
  expect(await barrier.liveness(holder)).toMatchObject([{ ...holder, state: "live", found: 1 }]);

  const all = await tap(await frontRoot(space, "main"), `cotal.main.ep.reply.com_example_clock.${instanceId}.1.>`);
  await expectTakenOver(space, service, instanceId);
  expect(await rowAt(endpointKey.cred(ENDPOINT, instanceId, old.userKey))).toMatchObject({ state: "revoked" });
  const before = { heard: old.heard.length, replies: all.messages.length };
  for (let n = 0; n < 50; n += 1) {
    expect(await caller.endpoints.call(ENDPOINT, "now", undefined)).toMatchObject({ data: { by: "new" }, epoch: 2 });
  }
  expect({ heard: old.heard.length, replies: all.messages.length }).toEqual(before);
  // Its credential lives for five seconds: a look may fall between two connections of it, but none finds two at once.
  await until("its successor is found, alone", async () => {
    const [seen] = await barrier.liveness(holder);
    expect(seen?.found).toBeLessThan(2);
    return seen?.state === "live" || `it is ${seen?.state}`;
  });
});
