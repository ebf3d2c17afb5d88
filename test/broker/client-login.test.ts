/**
 * A session of somebody who signed in at an identity provider: it outlives every one of its ID tokens,
 * and ends by name when the sign-in does. A real provider, a real broker, bearers that live for seconds.
 */
import { rmSync } from "node:fs";
import { type TestContext, expect, test, vi } from "vitest";
import { userCredentials } from "../../cli/signin.ts";
import { planePaths } from "../../launcher/state-folder.ts";
import { type Session, type SessionEvent, connect } from "../../shared/client/index.ts";
import { ErrorCode } from "../../shared/protocol/base/errors.ts";
import { writePrivate } from "../../shared/trust/folder.ts";
import { type IdentityProvider, startIdentityProvider } from "../support/identity-provider.ts";
import { type Kept, NATIVE_CLIENT, keptSignIn } from "../support/native-client.ts";
import { type SignInWorld, signInWorld } from "../support/sign-in-world.ts";
import { until } from "../support/until.ts";

vi.setConfig({ testTimeout: 120_000 });

/** Seconds; an ID token never lasts until a bearer is renewed. */
const ID_TOKEN_LIFE = 3;
const BEARER_LIFE = 8;

const claims = (token: string): Record<string, unknown> =>
  JSON.parse(Buffer.from(token.split(".")[1] ?? "", "base64url").toString()) as Record<string, unknown>;
const endOf = (token: string): number => Number(claims(token)["exp"]) * 1000;

type Opened = { readonly session: Session; readonly told: SessionEvent[] };

type World = SignInWorld & {
  readonly idp: IdentityProvider;
  readonly kept: Kept;
  /** A session by the sign-in that is kept, closed with the test. */
  readonly open: (actor: string) => Promise<Opened>;
  /** How often a refresh token was taken. */
  readonly refreshes: () => number;
};

/** An identity provider beside broker and exchange, and somebody who has signed in there. */
async function world(context: Pick<TestContext, "onTestFinished">): Promise<World> {
  const signIn = await signInWorld(context);
  const { broker, exchange } = signIn;
  exchange.life = BEARER_LIFE;
  exchange.believes = (idToken) => endOf(idToken) > Date.now();
  const idp = await startIdentityProvider({ native: [NATIVE_CLIENT], life: ID_TOKEN_LIFE });
  context.onTestFinished(() => idp.stop());
  const kept = await keptSignIn(idp, "alice");
  context.onTestFinished(() => rmSync(kept.place.state, { recursive: true }));
  const face = planePaths(kept.place.state).face("main");
  writePrivate(face, JSON.stringify({ url: exchange.url, capability: exchange.capability }));
  const open: World["open"] = async (actor) => {
    const told: SessionEvent[] = [];
    const session = await connect({
      servers: [broker.url],
      presence: false,
      onEvent: (event) => told.push(event),
      credentials: userCredentials(kept.place, actor),
    });
    context.onTestFinished(() => session.close());
    return { session, told };
  };
  const refreshes = (): number => idp.granted.filter((type) => type === "refresh_token").length;
  return { ...signIn, idp, kept, open, refreshes };
}

test.concurrent("two sessions of one sign-in outlive their ID tokens: none is presented when it is over, none renewed twice at once", async (context) => {
  const { exchange, idp, open, refreshes } = await world(context);
  const [ann, bob] = await Promise.all([open("ann"), open("bob")]);
  // Each asks again for a bearer at least twice, and each time the token of before was over.
  await until("each has asked three times", () => exchange.shown.length >= 6, 60_000);
  const asked = exchange.shown.map(({ idToken, at }) => endOf(idToken) - at);
  expect(Math.min(...asked)).toBeGreaterThan(0);
  expect(refreshes()).toBeGreaterThanOrEqual(2);
  expect(refreshes()).toBeLessThan(exchange.shown.length);
  expect(idp.refused).toEqual([]);
  for (const { told } of [ann, bob]) expect(told.filter(({ type }) => type === "unrenewed")).toEqual([]);
});

test.concurrent("a provider that is away across an expiry is asked again and again, and then all goes on", async (context) => {
  const { exchange, idp, open } = await world(context);
  const { told } = await open("ann");
  const requests: number[] = [];
  idp.intercept = (_, response) => {
    requests.push(Date.now());
    response.writeHead(503).end();
    return true;
  };
  // Past the end of the bearer: the connection is gone, and nothing can bring it back.
  await until("it is down", () => told.some(({ type }) => type === "down"), 30_000);
  // Before that end there was time for more than one attempt; nothing went to the exchange.
  expect(requests.length).toBeGreaterThanOrEqual(2);
  expect(exchange.shown.length).toBe(1);
  idp.intercept = undefined;
  await until("it is up", () => told.some(({ type }) => type === "up"), 60_000);
  expect(Math.min(...exchange.shown.map(({ idToken, at }) => endOf(idToken) - at))).toBeGreaterThan(0);
  expect(idp.refused).toEqual([]);
});

test.concurrent("a refresh token that the provider takes no more ends the session by name, and is asked with once", async (context) => {
  const { exchange, idp, kept, open } = await world(context);
  const { session, told } = await open("ann");
  await idp.revoke(kept.login().refreshToken ?? "", NATIVE_CLIENT);
  expect(await session.closed).toMatchObject({
    code: ErrorCode.Unauthenticated,
    next: "sign in again: cotal login",
  });
  // Until the bearer's end the exchange would still be asked, had there been anything to show.
  expect(told.filter(({ type }) => type === "unrenewed").length).toBeGreaterThanOrEqual(1);
  expect(idp.refused).toEqual(["refresh_token"]);
  expect(exchange.shown.length).toBe(1);
});
