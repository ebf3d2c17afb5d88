/**
 * The faces of a space as the auth service opens them, on a ledger in memory: what they say to whom, over
 * real HTTP and real TLS.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { type IncomingMessage, request as requestPlain } from "node:http";
import { request as requestSecure } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readFileSync } from "node:fs";
import { randomBytes } from "node:crypto";
import { DEFAULT_MAX_EXCHANGES } from "../../services/auth/edge/exchange.ts";
import type { TlsEvent } from "../../services/auth/edge/face-tls.ts";
import { DEFAULT_PROBES } from "../../services/auth/edge/probing-budget.ts";
import { DEFAULT_WINDOW } from "../../services/auth/edge/selection-windows.ts";
import { type FaceSettings, openFaces } from "../../services/auth/open-faces.ts";
import type { PublicFace } from "../../services/auth/public-faces.ts";
import { FaceFile } from "../../shared/protocol/endpoint/exchange-shapes.ts";
import type { Face } from "../../shared/protocol/endpoint/views.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { type EdgeRig, edgeRig } from "./edge-rig.ts";

export type TestFaces = {
  readonly rig: EdgeRig;
  readonly url: (face: Face) => string;
  readonly capability: () => string;
  readonly file: string;
  readonly tlsEvents: TlsEvent[];
  readonly devNotices: () => number;
  readonly close: () => Promise<void>;
};

export type TestFacesOptions = Partial<FaceSettings> & { readonly space?: string };

export const PLAIN_PUBLIC: PublicFace = { host: "127.0.0.1", port: 0, proxies: [] };

export async function startFaces(options: TestFacesOptions = {}): Promise<TestFaces> {
  const { space = "main", ...settings } = options;
  const folder = mkdtempSync(join(tmpdir(), "cotal-faces-"));
  const account = newKey("account");
  const rig = edgeRig({ space, authAccount: account.publicKey });
  const tlsEvents: TlsEvent[] = [];
  let notices = 0;
  const faces = await openFaces({
    space,
    keys: {
      folder,
      file: { auth: account.publicKey },
      authSigner: account,
      bearer: rig.signer,
      ownerSecret: randomBytes(32),
    },
    authority: rig.authority,
    chat: rig.chat,
    limits: rig.limits,
    scope: { issuer: rig.issuer, audience: rig.audience },
    isReady: () => true,
    idp: undefined,
    devIssuer: false,
    faceFile: join(folder, "exchange-{space}.json"),
    operatorFace: { kind: "machine", port: 0 },
    publicFace: undefined,
    clientServers: undefined,
    probes: DEFAULT_PROBES,
    exchanges: DEFAULT_MAX_EXCHANGES,
    selection: DEFAULT_WINDOW,
    chatProofSeconds: 300,
    onExchange: () => undefined,
    onChat: () => undefined,
    onFace: () => undefined,
    onTls: (event) => tlsEvents.push(event),
    onDevIssuer: () => {
      notices += 1;
    },
    ...settings,
  }).catch((error: unknown) => {
    rmSync(folder, { recursive: true });
    throw error;
  });
  const file = join(folder, `exchange-${space}.json`);
  return {
    rig,
    url: (face) => faces.urls[face] ?? "",
    capability: () => FaceFile.parse(JSON.parse(readFileSync(file, "utf8"))).capability,
    file,
    tlsEvents,
    devNotices: () => notices,
    close: async () => {
      await faces.close();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

export type Asked = {
  readonly method?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
  /** PEM of who is trusted. */
  readonly ca?: string;
};

export type Answered = {
  readonly status: number;
  readonly headers: IncomingMessage["headers"];
  readonly json: Record<string, unknown>;
};

/** One request on a connection of its own. */
export function ask(url: string, { method = "POST", headers = {}, body, ca }: Asked = {}): Promise<Answered> {
  return new Promise((resolve, reject) => {
    const options = { method, headers: { "content-type": "application/json", ...headers }, agent: false };
    const answered = (response: IncomingMessage): void => {
      const chunks: Buffer[] = [];
      response.on("data", (chunk: Buffer) => chunks.push(chunk));
      response.once("error", reject);
      response.once("end", () => {
        const text = Buffer.concat(chunks).toString();
        const json = (text === "" ? {} : JSON.parse(text)) as Record<string, unknown>;
        resolve({ status: response.statusCode ?? 0, headers: response.headers, json });
      });
    };
    const request = url.startsWith("https:")
      ? requestSecure(url, { ...options, ...(ca === undefined ? {} : { ca }) }, answered)
      : requestPlain(url, options, answered);
    request.once("error", reject);
    request.end(body);
  });
}
