/**
 * A real OpenID provider in process, and people who sign in to it: by the authorization code flow, with
 * its own login and consent pages.
 *
 * Public clients (`native`) come back to any port of 127.0.0.1, get refresh tokens that are rotated, and
 * may sign in by device. Who uses a refresh token twice loses the sign-in: the provider's own rule.
 */
import { type JsonWebKey, generateKeyPairSync } from "node:crypto";
import { type IncomingMessage, type Server, type ServerResponse, createServer } from "node:http";
import Provider from "oidc-provider";
import { walk } from "./browsing.ts";

export type ProviderOptions = {
  /** Client ids; each is an audience of its own. */
  readonly clients?: readonly string[];
  readonly algorithm?: "RS256" | "ES256";
  /** The keys of another provider, under this one's name. */
  readonly keys?: readonly SigningJwk[];
  /** Claims in everybody's ID token. */
  readonly claims?: Readonly<Record<string, unknown>>;
  readonly life?: number;
  /** Ids of public clients: command lines of people. */
  readonly native?: readonly string[];
  /** Parts of its configuration that are to be otherwise. */
  readonly features?: Readonly<Record<string, unknown>>;
};

export type SigningJwk = JsonWebKey & { readonly kid: string; readonly alg: string };

export type IdentityProvider = {
  readonly issuer: string;
  readonly keys: readonly SigningJwk[];
  /** An ID token of that person, for that client. */
  readonly signIn: (login: string, client?: string) => Promise<string>;
  /** Requests for the keys so far. */
  readonly keyRequests: () => number;
  /** Seconds that the next ID tokens live. */
  life: number;
  /** Answers a request in the provider's place; `false` leaves it to the provider. */
  intercept: ((request: IncomingMessage, response: ServerResponse) => boolean) | undefined;
  /** Grants so far, by type, and those that were refused. */
  readonly granted: readonly string[];
  readonly refused: readonly string[];
  /** Ends a refresh token, as its owner would on the provider's pages. */
  readonly revoke: (refreshToken: string, client: string) => Promise<void>;
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
  const { clients = ["cotal"], native = [], features = {}, algorithm = "RS256", claims = {}, life = 300 } = options;
  const keys = options.keys ?? [newSigningJwk(`k-${algorithm}`, algorithm)];
  let keyRequests = 0;
  let handle: ReturnType<Provider["callback"]> = (_, response) => void response.end();
  const server = createServer((request, response) => {
    if (request.url === "/jwks") keyRequests += 1;
    if (made.intercept?.(request, response) !== true) handle(request, response);
  });
  const issuer = await listen(server);
  const provider = quietly(
    () =>
      new Provider(issuer, {
        clients: [
          ...clients.map((client_id) => ({
            client_id,
            client_secret: SECRET,
            redirect_uris: [REDIRECT],
            response_types: ["code"],
            grant_types: ["authorization_code"],
            id_token_signed_response_alg: algorithm,
          })),
          ...native.map((client_id) => nativeClient(client_id, algorithm)),
        ],
        jwks: { keys },
        cookies: { keys: ["a cookie key for tests"] },
        claims: { openid: ["sub", ...Object.keys(claims)] },
        conformIdTokenClaims: false,
        findAccount: (_: unknown, id: string) => ({ accountId: id, claims: () => ({ sub: id, ...claims }) }),
        pkce: { required: (_: unknown, { clientId }: { clientId: string }) => native.includes(clientId) },
        features: {
          deviceFlow: { enabled: native.length > 0, ...DEVICE_PAGES },
          revocation: { enabled: native.length > 0, allowedPolicy: ownOnly },
          ...features,
        },
        ttl: {
          IdToken: () => made.life,
          AccessToken: 300,
          AuthorizationCode: 60,
          DeviceCode: 60,
          RefreshToken: 600,
          Session: 600,
          Interaction: 600,
          Grant: 600,
        },
      }),
  );
  handle = provider.callback();
  const granted: string[] = [];
  const refused: string[] = [];
  provider.on("grant.success", ({ oidc }) => granted.push(oidc.params["grant_type"] ?? ""));
  provider.on("grant.error", ({ oidc }) => refused.push(oidc.params["grant_type"] ?? ""));
  const made: IdentityProvider = {
    issuer,
    keys,
    keyRequests: () => keyRequests,
    life,
    intercept: undefined,
    granted,
    refused,
    revoke: async (token, client_id) => {
      const body = new URLSearchParams({ token, client_id, token_type_hint: "refresh_token" });
      const { status } = await fetch(`${issuer}/token/revocation`, { method: "POST", body });
      if (status !== 200) throw new Error(`the provider does not revoke: ${status}`);
    },
    signIn: (login, client = clients[0] ?? "cotal") => signIn(issuer, client, login),
    stop: () =>
      new Promise((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
      }),
  };
  return made;
}

type Owned = { readonly clientId: string };
const ownOnly = (_: unknown, client: Owned, token: Owned): boolean => client.clientId === token.clientId;

type PageContext = { body: string };

/** Its own pages for codes: the same forms without the looks. */
const DEVICE_PAGES = {
  userCodeInputSource: (context: PageContext, form: string) => void (context.body = form),
  userCodeConfirmSource: (context: PageContext, form: string) => void (context.body = form),
  successSource: (context: PageContext) => void (context.body = "<p>signed in</p>"),
};

function nativeClient(client_id: string, algorithm: string): object {
  return {
    client_id,
    application_type: "native",
    token_endpoint_auth_method: "none",
    redirect_uris: ["http://127.0.0.1/callback"],
    response_types: ["code"],
    grant_types: ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"],
    id_token_signed_response_alg: algorithm,
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

async function signIn(issuer: string, client: string, login: string): Promise<string> {
  const query = new URLSearchParams({
    client_id: client,
    response_type: "code",
    scope: "openid",
    redirect_uri: REDIRECT,
  });
  const { url: at } = await walk(`${issuer}/auth?${query.toString()}`, { login });
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
