/**
 * A real OpenID provider in process, and people who sign in to it: by the authorization code flow, with
 * its own login and consent pages.
 */
import { type JsonWebKey, generateKeyPairSync } from "node:crypto";
import { type Server, createServer } from "node:http";
import Provider from "oidc-provider";

export type ProviderOptions = {
  /** Client ids; each is an audience of its own. */
  readonly clients?: readonly string[];
  readonly algorithm?: "RS256" | "ES256";
  /** The keys of another provider, under this one's name. */
  readonly keys?: readonly SigningJwk[];
  /** Claims in everybody's ID token. */
  readonly claims?: Readonly<Record<string, unknown>>;
  readonly life?: number;
};

export type SigningJwk = JsonWebKey & { readonly kid: string; readonly alg: string };

export type IdentityProvider = {
  readonly issuer: string;
  readonly keys: readonly SigningJwk[];
  /** An ID token of that person, for that client. */
  readonly signIn: (login: string, client?: string) => Promise<string>;
  /** Requests for the keys so far. */
  readonly keyRequests: () => number;
  readonly stop: () => Promise<void>;
};

const REDIRECT = "http://127.0.0.1:9/callback";
const SECRET = "s".repeat(32);

export function newSigningJwk(kid: string, algorithm: "RS256" | "ES256" = "RS256"): SigningJwk {
  const { privateKey } =
    algorithm === "RS256"
      ? generateKeyPairSync("rsa", { modulusLength: 2048 })
      : generateKeyPairSync("ec", { namedCurve: "P-256" });
  return { ...privateKey.export({ format: "jwk" }), kid, alg: algorithm, use: "sig" };
}

export async function startIdentityProvider(options: ProviderOptions = {}): Promise<IdentityProvider> {
  const { clients = ["cotal"], algorithm = "RS256", claims = {}, life = 300 } = options;
  const keys = options.keys ?? [newSigningJwk(`k-${algorithm}`, algorithm)];
  let keyRequests = 0;
  let handle: ReturnType<Provider["callback"]> = (_, response) => void response.end();
  const server = createServer((request, response) => {
    if (request.url === "/jwks") keyRequests += 1;
    handle(request, response);
  });
  const issuer = await listen(server);
  const provider = quietly(
    () =>
      new Provider(issuer, {
        clients: clients.map((client_id) => ({
          client_id,
          client_secret: SECRET,
          redirect_uris: [REDIRECT],
          response_types: ["code"],
          grant_types: ["authorization_code"],
          id_token_signed_response_alg: algorithm,
        })),
        jwks: { keys },
        cookies: { keys: ["a cookie key for tests"] },
        claims: { openid: ["sub", ...Object.keys(claims)] },
        conformIdTokenClaims: false,
        findAccount: (_: unknown, id: string) => ({ accountId: id, claims: () => ({ sub: id, ...claims }) }),
        pkce: { required: () => false },
        ttl: { IdToken: life, AccessToken: 300, AuthorizationCode: 60, Session: 600, Interaction: 600, Grant: 600 },
      }),
  );
  handle = provider.callback();
  return {
    issuer,
    keys,
    keyRequests: () => keyRequests,
    signIn: (login, client = clients[0] ?? "cotal") => signIn(issuer, client, login),
    stop: () =>
      new Promise((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
      }),
  };
}

/** It tells everybody who starts it that its pages are for development. So they are. */
function quietly<T>(make: () => T): T {
  const { info, warn } = console;
  console.info = console.warn = () => undefined;
  try {
    return make();
  } finally {
    Object.assign(console, { info, warn });
  }
}

function listen(server: Server): Promise<string> {
  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      resolve(`http://127.0.0.1:${typeof address === "object" && address !== null ? address.port : 0}`);
    });
  });
}

/** A browser, as far as it goes: cookies, redirects, two forms. */
async function signIn(issuer: string, client: string, login: string): Promise<string> {
  const jar = new Map<string, string>();
  const ask = async (url: string, form?: Readonly<Record<string, string>>): Promise<Response> => {
    const cookie = [...jar].map(([name, value]) => `${name}=${value}`).join("; ");
    const response = await fetch(url, {
      redirect: "manual",
      headers: { cookie },
      ...(form === undefined ? {} : { method: "POST", body: new URLSearchParams(form) }),
    });
    for (const line of response.headers.getSetCookie()) {
      const [name = "", value = ""] = (line.split(";")[0] ?? "").split("=");
      jar.set(name, value);
    }
    return response;
  };
  const query = new URLSearchParams({
    client_id: client,
    response_type: "code",
    scope: "openid",
    redirect_uri: REDIRECT,
  });
  let at = `${issuer}/auth?${query.toString()}`;
  for (let steps = 0; steps < 12 && !at.startsWith(REDIRECT); steps += 1) {
    const isForm = at.includes("/interaction/");
    const page = isForm ? await (await ask(at)).text() : "";
    const prompt = page.includes('name="login"') ? "login" : "consent";
    const form = prompt === "login" ? { prompt, login, password: "any" } : { prompt };
    const response = await ask(at, isForm ? form : undefined);
    const next = response.headers.get("location");
    if (next === null) throw new Error(`the provider does not go on: ${response.status} ${await response.text()}`);
    at = new URL(next, issuer).href;
  }
  const code = new URL(at).searchParams.get("code");
  if (code === null) throw new Error(`no code: ${at}`);
  const response = await fetch(`${issuer}/token`, {
    method: "POST",
    headers: { authorization: `Basic ${Buffer.from(`${client}:${SECRET}`).toString("base64")}` },
    body: new URLSearchParams({ grant_type: "authorization_code", code, redirect_uri: REDIRECT }),
  });
  const answer: unknown = await response.json();
  const token: unknown = typeof answer === "object" && answer !== null ? Reflect.get(answer, "id_token") : undefined;
  if (typeof token !== "string") throw new Error(`no ID token: ${JSON.stringify(answer)}`);
  return token;
}
