/**
 * Junk on the callout's subject, as somebody would publish it who got hold of the one user that may be
 * inside the auth account: everything beside what a broker really asks.
 */
import { randomBytes } from "node:crypto";
import { createServer } from "@nats-io/nkeys";
import { type MsgHdrs, headers } from "@nats-io/transport-node";
import { sys } from "../../shared/protocol/base/broker-subjects.ts";
import { Header } from "../../shared/protocol/base/headers.ts";
import { MAX_REQUEST_BYTES } from "../../shared/trust/callout.ts";
import { keyFromSeed, newKey } from "../../shared/trust/keys.ts";
import { signedJwt } from "../../shared/trust/nats-jwt.ts";
import { newCurveKey } from "../../shared/trust/xkey.ts";
import type { AuthKeys } from "../../services/auth/keys.ts";
import { connectResponder, nowSeconds } from "./callout-responder.ts";

/** What junk is made of. */
type Made = { readonly bytes: Uint8Array; readonly sender?: string };

export type JunkCallout = {
  /** Publishes that many of one kind; the service has had them all when this resolves. */
  readonly send: (kind: JunkKind, count: number) => Promise<void>;
  readonly close: () => Promise<void>;
};

export const JUNK_KINDS = ["undecodable boxes", "valid boxes with junk bearers", "oversize"] as const;
export type JunkKind = (typeof JUNK_KINDS)[number];

/** Beside each other on the way; the broker drops no message of a subscriber that keeps up. */
const CHUNK = 100;

export async function junkCallout(url: string, keys: AuthKeys): Promise<JunkCallout> {
  const by = { account: keys.file.auth, signer: keys.authSigner };
  const nc = await connectResponder(url, keys.calloutUser, by, {});
  const make = makers(keys);
  const reply = "junk.answers";
  let answered = 0;
  nc.subscribe(reply, {
    callback: () => {
      answered += 1;
    },
  });
  return {
    send: async (kind, count) => {
      const makersOf = make[kind];
      for (let sent = 0; sent < count; sent += 1) {
        const made = makersOf[sent % makersOf.length]?.() ?? { bytes: new Uint8Array() };
        nc.publish(sys.userAuth, made.bytes, { reply, ...sentBy(made) });
        if (sent % CHUNK === CHUNK - 1) await nc.flush();
      }
      // Messages of one publisher arrive in order: whoever is answered after them has come after them.
      const before = answered;
      const last = make["valid boxes with junk bearers"][0]?.() ?? { bytes: new Uint8Array() };
      nc.publish(sys.userAuth, last.bytes, { reply, ...sentBy(last) });
      for (let waits = 0; answered === before && waits < 600; waits += 1) {
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    },
    close: () => nc.close(),
  };
}

function sentBy({ sender }: Made): { headers?: MsgHdrs } {
  if (sender === undefined) return {};
  const set = headers();
  set.set(Header.ServerXkey, sender);
  return { headers: set };
}

function makers(keys: AuthKeys): Readonly<Record<JunkKind, readonly (() => Made)[]>> {
  const curve = newCurveKey();
  const stranger = newCurveKey();
  const server = keyFromSeed(Buffer.from(createServer().getSeed()).toString());
  const ours = keys.curve.publicKey;
  const sealed = (plain: Uint8Array | string): Made => ({
    bytes: curve.seal(ours, Buffer.from(plain)),
    sender: curve.publicKey,
  });
  /** A request whose seal and signature hold, of a server that nobody knows. */
  const asking = (auth_token: unknown, over: Readonly<Record<string, unknown>> = {}): Made =>
    sealed(
      signedJwt(
        {
          sub: keys.file.auth,
          aud: "nats-authorization-request",
          iat: nowSeconds(),
          exp: nowSeconds() + 60,
          nats: {
            server_id: { name: "n", host: "h", id: server.publicKey, version: "2.14.0", xkey: curve.publicKey },
            user_nkey: newKey("user").publicKey,
            client_info: { host: `10.0.${randomBytes(1)[0] ?? 0}.${randomBytes(1)[0] ?? 0}`, id: 1, user: "U" },
            connect_opts: { auth_token, jwt: "eyJ.s.t", name: randomBytes(20).toString("hex"), protocol: 1 },
            type: "authorization_request",
            ...over,
          },
        },
        server,
      ),
    );
  const claims = Buffer.from(JSON.stringify({ iss: keys.file.issuer, act: {} })).toString("base64url");
  return {
    "undecodable boxes": [
      () => ({ bytes: new Uint8Array() }),
      () => ({ bytes: randomBytes(2000), sender: curve.publicKey }),
      () => ({ bytes: Buffer.concat([Buffer.from("xkv1"), randomBytes(1500)]), sender: newCurveKey().publicKey }),
      () => ({ bytes: stranger.seal(ours, randomBytes(1500)), sender: curve.publicKey }),
      () => ({ bytes: Buffer.from("eyJhbGciOiJub25lIn0.e30."), sender: "no key at all" }),
      () => ({ ...sealed(randomBytes(1500)), sender: `X${"A".repeat(55)}` }),
      () => sealed(randomBytes(1500)),
      () => sealed("not.a.jwt"),
    ],
    "valid boxes with junk bearers": [
      () => asking(randomBytes(60).toString("base64url")),
      () => asking("a.b.c"),
      () => asking("x".repeat(20_000)),
      () => asking(`eyJhbGciOiJFZERTQSJ9.${claims}.${randomBytes(64).toString("base64url")}`),
      () => asking(`eyJhbGciOiJub25lIn0.${claims}.`),
      () => asking(undefined),
      () => asking(7),
      () => asking("a.b.c", { type: "user" }),
      () => asking("a.b.c", { client_info: [] }),
    ],
    oversize: [
      () => ({ bytes: Buffer.alloc(MAX_REQUEST_BYTES + 1, 97), sender: curve.publicKey }),
      () => sealed(Buffer.alloc(MAX_REQUEST_BYTES - 64, 97)),
    ],
  };
}
