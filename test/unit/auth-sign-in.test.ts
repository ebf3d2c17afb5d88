/** What an exchange says to anybody about where its people sign in. */
import { expect, test } from "vitest";
import { signInRoute } from "../../services/auth/edge/sign-in.ts";
import { SignInAnswer } from "../../shared/protocol/endpoint/exchange-shapes.ts";
import { Face } from "../../shared/protocol/endpoint/views.ts";

const peer = { face: Face.Public, address: "192.0.2.1" } as const;

test("it names the issuer, the client whose tokens are taken, and what to ask for; to everybody", async () => {
  const idp = { issuer: "https://login.example.com", audience: "cotal", scopes: ["openid"] };
  const route = signInRoute(idp);
  expect(route).toMatchObject({ method: "GET", path: "/sign-in", guarded: false });
  const { status, body } = await route.handle(undefined, peer);
  expect([status, body]).toEqual([200, { issuer: idp.issuer, clientId: "cotal", scopes: ["openid"] }]);
  expect(SignInAnswer.parse(body)).toEqual(body);
});

test("where there is no provider it names none, and nothing else of the service", async () => {
  const { status, body } = await signInRoute(undefined).handle(undefined, peer);
  expect([status, body]).toEqual([200, {}]);
});
