/** Settings of the auth service that are more than one value: the public faces, and the sizes of limits. */
import { describe, expect, test } from "vitest";
import { authConfig } from "../../services/auth/config.ts";
import { DEFAULT_LIMIT_SIZES } from "../../services/auth/edge/connect-limits.ts";
import { DEFAULT_PROBES } from "../../services/auth/edge/probing-budget.ts";
import { DEFAULT_WINDOW } from "../../services/auth/edge/selection-windows.ts";
import { idpSettings } from "../../services/auth/idp-settings.ts";
import { operatorFaces } from "../../services/auth/operator-face.ts";
import { publicFaces } from "../../services/auth/public-faces.ts";
import { refusal } from "../support/refusal.ts";

const read = (env: Record<string, string>) => authConfig.read({ env }).values;
const facesOf = (env: Record<string, string>) => publicFaces(read({ COTAL_AUTH_PUBLIC_PLAIN: "true", ...env }));
const TLS = {
  COTAL_AUTH_PUBLIC_PLAIN: "",
  COTAL_AUTH_PUBLIC_TLS_CERT: "/tls/{space}.crt",
  COTAL_AUTH_PUBLIC_TLS_KEY: "/tls/{space}.key",
};

describe("who proves who somebody is", () => {
  const idpOf = (env: Record<string, string>) => idpSettings(read(env));
  const IDP = { COTAL_IDP_ISSUER: "https://login.example.com", COTAL_IDP_AUDIENCE: "cotal" };

  test("an identity provider, the development issuer, or nobody where nobody is let in", () => {
    expect(idpOf(IDP)).toMatchObject({ issuer: "https://login.example.com", audience: "cotal" });
    expect(idpOf({ COTAL_AUTH_DEV_ISSUER: "true" })).toBeUndefined();
    expect(idpOf({ COTAL_AUTH_ROLES: "plane" })).toBeUndefined();
  });

  test.each([
    ["an issuer alone", { COTAL_IDP_ISSUER: IDP.COTAL_IDP_ISSUER, COTAL_AUTH_DEV_ISSUER: "true" }, /AUDIENCE is not/],
    ["an audience alone", { COTAL_IDP_AUDIENCE: "cotal", COTAL_AUTH_DEV_ISSUER: "true" }, /ISSUER is not/],
    ["nothing", {}, /nothing proves/],
    ["an open line", { ...IDP, COTAL_IDP_ISSUER: "http://login.example.com" }, /https/],
    ["keys over an open line", { ...IDP, COTAL_IDP_JWKS: "http://login.example.com/keys" }, /https/],
  ])("refused when the process starts: %s", (_, env, message) => {
    expect(refusal(() => idpOf(env))).toMatchObject({
      code: "bad-request",
      message: expect.stringMatching(message) as string,
    });
  });
});

describe("public faces", () => {
  test("there are none unless asked for, whatever else is set", () => {
    expect(publicFaces(read({}))("main")).toBeUndefined();
    expect(publicFaces(read({ ...TLS, COTAL_AUTH_PUBLIC_PROXIES: "10.0.0.0/8" }))("main")).toBeUndefined();
  });

  test("W10.04 a listener for each space that is named, with files of its own; none for the others", () => {
    const faces = facesOf({
      COTAL_SPACES: "main,lab,third",
      COTAL_AUTH_PUBLIC: "main=0.0.0.0:8443, lab=[::1]:0",
      ...TLS,
    });
    expect(faces("main")).toEqual({
      host: "0.0.0.0",
      port: 8443,
      tls: { cert: "/tls/main.crt", key: "/tls/main.key" },
      proxies: [],
    });
    expect(faces("lab")).toMatchObject({ host: "::1", port: 0, tls: { cert: "/tls/lab.crt" } });
    expect(faces("third")).toBeUndefined();
  });

  test("an address alone is the only space's", () => {
    const faces = facesOf({ COTAL_SPACES: "lab", COTAL_AUTH_PUBLIC: "127.0.0.1:8443" });
    expect([faces("lab"), faces("main")]).toEqual([{ host: "127.0.0.1", port: 8443, proxies: [] }, undefined]);
  });

  test("where any space may come, each is named", () => {
    const later = facesOf({
      COTAL_SPACES: "*",
      COTAL_AUTH_PUBLIC: "later=127.0.0.1:1",
      COTAL_AUTH_PUBLIC_PROXIES: "::1,10.0.0.0/8",
    });
    expect(later("later")).toEqual({ host: "127.0.0.1", port: 1, proxies: ["::1", "10.0.0.0/8"] });
  });

  test.each([
    [
      "an address alone, and several spaces",
      { COTAL_SPACES: "main,lab", COTAL_AUTH_PUBLIC: "127.0.0.1:1" },
      /names none/,
    ],
    [
      "an address alone, and whatever space comes",
      { COTAL_SPACES: "*", COTAL_AUTH_PUBLIC: "127.0.0.1:1" },
      /names none/,
    ],
    ["a space that is not served", { COTAL_AUTH_PUBLIC: "lab=127.0.0.1:1" }, /names lab, which is not served/],
    ["a space twice", { COTAL_AUTH_PUBLIC: "main=127.0.0.1:1,127.0.0.1:2" }, /names main twice/],
    [
      "neither TLS nor plain",
      { COTAL_AUTH_PUBLIC: "127.0.0.1:1", COTAL_AUTH_PUBLIC_PLAIN: "false" },
      /needs a certificate/,
    ],
    [
      "a certificate without its key",
      { ...TLS, COTAL_AUTH_PUBLIC: "127.0.0.1:1", COTAL_AUTH_PUBLIC_TLS_KEY: "" },
      /needs a certificate and its key/,
    ],
    [
      "TLS and plain",
      { ...TLS, COTAL_AUTH_PUBLIC: "127.0.0.1:1", COTAL_AUTH_PUBLIC_PLAIN: "true" },
      /plain, and a certificate/,
    ],
  ])("%s is refused", (_, env, message) => {
    const error = refusal(() => facesOf(env));
    expect([error.code, error.message]).toEqual(["bad-request", expect.stringMatching(message)]);
    expect(error.next).toBeTruthy();
  });

  test.each([
    "localhost:1",
    "main=host:1",
    "127.0.0.1",
    "127.0.0.1:65536",
    "127.0.0.256:1",
    "::1:1",
    "[127.0.0.1]:1",
    "a.b=127.0.0.1:1",
    "=127.0.0.1:1",
    "https://127.0.0.1:1",
  ])("%s is no listener", (text) => {
    expect(refusal(() => read({ COTAL_AUTH_PUBLIC: text })).message).toContain("COTAL_AUTH_PUBLIC: expected");
  });

  test.each(["everybody", "10.0.0.0/0", "0.0.0.0/33", "10.0.0.0/8/8", "::/129", "loopback", "10.0.0.0/-1"])(
    "%s is no proxy to believe",
    (text) => {
      expect(refusal(() => read({ COTAL_AUTH_PUBLIC_PROXIES: text })).message).toContain("COTAL_AUTH_PUBLIC_PROXIES");
    },
  );
});

test("W10.21 the sizes of limits are settings, and their defaults are those that are documented", () => {
  const { connectsPerActor, connectsPerOwner, connectsPerHost, probes, exchanges, ...rest } = read({});
  const { actor, owner, host } = DEFAULT_LIMIT_SIZES;
  expect([connectsPerActor, connectsPerOwner, connectsPerHost]).toEqual([actor.burst, owner.burst, host.burst]);
  expect([probes, exchanges]).toEqual([DEFAULT_PROBES.burst, 128]);
  expect({ refusals: rest.selectionRefusals, seconds: rest.selectionSeconds }).toEqual(DEFAULT_WINDOW);
  expect(read({ COTAL_AUTH_CONNECTS_PER_OWNER: "7" }).connectsPerOwner).toBe(7);
  for (const none of ["0", "-1", "1.5", "many"]) {
    expect(refusal(() => read({ COTAL_AUTH_CONNECTS_PER_HOST: none })).message).toContain(
      "COTAL_AUTH_CONNECTS_PER_HOST",
    );
  }
});

describe("the loopback exchange in a container (decision 30)", () => {
  const placesOf = (env: Record<string, string>) => operatorFaces(read({ COTAL_SPACES: "main,lab", ...env }));
  const BOTH = {
    COTAL_AUTH_FACE: "main=0.0.0.0:7480,lab=0.0.0.0:7481",
    COTAL_AUTH_FACE_CAPABILITY: "/keys/{space}/face.capability",
  };

  test("on a machine it is the loopback address, and a port that may be named", () => {
    expect(placesOf({})("main")).toEqual({ kind: "machine", port: 0 });
    expect(placesOf({ COTAL_SPACES: "main", COTAL_AUTH_FACE_PORT: "8443" })("main")).toEqual({
      kind: "machine",
      port: 8443,
    });
  });

  test("in a container each space has its place and its capability; one that is not named stays on loopback", () => {
    const places = placesOf({ ...BOTH, COTAL_SPACES: "main,lab,third" });
    expect(places("lab")).toEqual({
      kind: "container",
      host: "0.0.0.0",
      port: 7481,
      capability: "/keys/lab/face.capability",
    });
    expect(places("third")).toEqual({ kind: "machine", port: 0 });
  });

  test.each([
    ["a place without a capability", { COTAL_AUTH_FACE_CAPABILITY: "" }, /one of them is not set/],
    ["a capability without a place", { COTAL_AUTH_FACE: "" }, /one of them is not set/],
    ["two places of one space", { COTAL_AUTH_FACE: "main=0.0.0.0:1,main=0.0.0.0:2" }, /COTAL_AUTH_FACE .*twice/],
    ["a space that is not served", { COTAL_AUTH_FACE: "other=0.0.0.0:1" }, /COTAL_AUTH_FACE .*other/],
    ["an address for no space", { COTAL_AUTH_FACE: "0.0.0.0:1" }, /names none/],
  ])("refused when the process starts: %s", (_, env, message) => {
    expect(refusal(() => placesOf({ ...BOTH, ...env }))).toMatchObject({
      code: "bad-request",
      message: expect.stringMatching(message) as string,
    });
  });
});
