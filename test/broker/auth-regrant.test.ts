/**
 * A revoked name is granted again once the broker itself shows that nobody bears it: the sweep of a real
 * broker's connections, and what the successor of a name finds.
 */
import { connect } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connectionsOver, sweep } from "../../shared/broker/still-connected.ts";
import type { Connection } from "../../shared/broker/connect.ts";
import { jsApi } from "../../shared/protocol/base/broker-subjects.ts";
import { dmDurable, spaceNames } from "../../shared/protocol/base/names.ts";
import { type Principal, principal } from "../../shared/protocol/base/principals.ts";
import { spaceSubjects } from "../../shared/protocol/base/subjects.ts";
import { ActorAnswer } from "../../shared/protocol/endpoint/auth-shapes.ts";
import type { ExchangeAnswer } from "../../shared/protocol/endpoint/exchange-shapes.ts";
import { EndpointName } from "../../shared/protocol/endpoint/grammar.ts";
import { type AuthService, startAuthService } from "../support/auth-service.ts";
import { eventually } from "../support/cli.ts";
import { OWNER } from "../support/plane-parts.ts";
import { daemonCredential, freshHolder } from "../support/holders.ts";
import { freePort, startBroker } from "../support/nats-server.ts";
import { failure } from "../support/refusal.ts";
import { type TestSpace, startSpace } from "../support/space.ts";

const names = spaceNames("main");
const subjects = spaceSubjects("main");

describe("a space that people sign in to", () => {
  let space: TestSpace;
  let auth: AuthService;
  let front: Connection;
  beforeAll(async () => {
    space = await startSpace({ auth: "user", delivery: false });
    auth = await startAuthService(space);
    await comesIn("first");
    // The auth service's own profile: what it may ask is what the sweep has.
    const holder = { ...freshHolder(OWNER, "looker"), space: "main" };
    const scope = { ...holder, instanceId: holder.holder.uid, epoch: 1 };
    front = await space.open(await daemonCredential(space, "auth-server", "front", scope));
  }, 60_000);
  afterAll(async () => {
    await auth.stop();
    await space.stop();
  });

  const say = (command: string, args: unknown) => space.call(command, args, { endpoint: EndpointName.Auth });

  async function comesIn(actor: string): Promise<ExchangeAnswer> {
    const found = await eventually(
      () => auth.signIn(actor).catch(() => undefined),
      (answer) => answer !== undefined,
      20_000,
    );
    if (found === undefined) throw new Error(`${actor} never came in:\n${auth.log()}`);
    return found;
  }

  /** The next message of the actor's own inbox, as its client pulls it; `undefined` if there is none. */
  async function pull({ nc, inboxPrefix }: Connection, p: Principal, uid: string): Promise<string | undefined> {
    const inbox = `${inboxPrefix}.pull`;
    const subscription = nc.subscribe(inbox, { max: 1 });
    nc.publish(jsApi.next(names.dm, dmDurable(p, uid)), JSON.stringify({ batch: 1, expires: 1e9 }), { reply: inbox });
    for await (const message of subscription) {
      return message.headers?.code === 0 || message.headers === undefined ? message.string() : undefined;
    }
    return undefined;
  }

  test("W131.13 the broker's own list names who a callout let in, page by page, and a connection that ended no more", async () => {
    const answer = await auth.signIn("paged");
    const p = principal(answer.owner, "paged");
    const sizes = { page: 2, overlap: 1 };
    const live = await Promise.all(["a", "b", "c"].map((one) => auth.connect(answer, one.repeat(26))));
    expect(await sweep(front.nc, p, sizes)).toEqual({ kind: "some", count: 3 });
    expect(await sweep(front.nc, p)).toEqual({ kind: "some", count: 3 });
    expect(await sweep(front.nc, principal(answer.owner, "page"))).toEqual({ kind: "none" });
    await Promise.all(live.map((one) => one.close()));
    await expect.poll(() => sweep(front.nc, p, sizes), { timeout: 5000 }).toEqual({ kind: "none" });
  });

  test("W8.08 W131.06 W131.13 re-granting names the connection; once it has ended, the successor sees neither backlog nor gap", async () => {
    const before = await auth.signIn("mallory");
    const p = principal(before.owner, "mallory");
    const sender = principal(before.owner, "sender");
    const store = await space.store();
    const send = (text: string) => store.request(subjects.inst(p, sender), text);
    const live = await auth.connect(before, "m".repeat(26));
    await send("backlog");
    await say("actor-revoke", p);
    const regrant = () => say("actor-grant", { ...p, allowSubscribe: [">"], allowPublish: [">"] });
    const refused = await failure(regrant());
    expect(refused).toMatchObject({ code: "failed-precondition", outcome: "not-executed" });
    expect(refused.message).toContain("still connected: 1 connection");
    expect(refused.next).toMatch(/its last bearer ends by \d{4}-\d\d-\d\dT/);
    expect(live.isUp()).toBe(true);
    await send("in the gap");
    await live.close();
    const { actor } = ActorAnswer.parse(await regrant());
    expect(actor.lifecycleUid).not.toBe(before.lifecycleUid);
    const after = await auth.signIn("mallory");
    expect(after.lifecycleUid).toBe(actor.lifecycleUid);
    expect(await failure(auth.connect(before, "o".repeat(26)))).toMatchObject({ code: "unauthenticated" });
    const successor = await auth.connect(after, "s".repeat(26));
    expect(await pull(successor, p, after.lifecycleUid)).toBeUndefined();
    await send("to the successor");
    expect(await pull(successor, p, after.lifecycleUid)).toBe("to the successor");
    await successor.close();
  }, 60_000);
});

test("W131.13 a server of a cluster proves nothing: whoever is missing there may be at another one", async () => {
  const routes = await freePort();
  const broker = await startBroker({
    config: (port) =>
      [`listen: "127.0.0.1:${port}"`, `cluster { name: one, listen: "127.0.0.1:${routes}" }`].join("\n"),
  });
  const nc = await connect({ servers: [broker.url] });
  try {
    const found = await connectionsOver(
      () => nc,
      () => Promise.reject(new Error("it waited")),
    )(principal(OWNER, "alice"));
    expect(found).toMatchObject({ kind: "unknown", code: "unimplemented" });
  } finally {
    await nc.close();
    await broker.stop();
  }
});
