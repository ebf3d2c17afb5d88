/**
 * Junk on the callout's subject, which comes as from a broker (`between.ts`): everything beside what one
 * really asks.
 */
import { randomBytes } from "node:crypto";
import { createServer } from "@nats-io/nkeys";
import { sys } from "../../shared/protocol/base/broker-subjects.ts";
import { Header } from "../../shared/protocol/base/headers.ts";
import { MAX_REQUEST_BYTES } from "../../shared/trust/callout.ts";
import { keyFromSeed, newKey } from "../../shared/trust/keys.ts";
import { signedJwt } from "../../shared/trust/nats-jwt.ts";
import { newCurveKey } from "../../shared/trust/xkey.ts";
import type { AuthKeys } from "../../services/auth/keys.ts";
import { startBetween } from "./between.ts";
import { nowSeconds } from "./callout-responder.ts";

/** What junk is made of. */
type Made = { readonly bytes: Uint8Array; readonly sender?: string };

export type JunkCallout = {
  /** Where the service is to connect. */
  readonly url: string;
  /** Sends that many of one kind; the service has had them all when this resolves. */
  readonly send: (kind: JunkKind, count: number, keys: AuthKeys) => Promise<void>;
  readonly stop: () => Promise<void>;
};

export const JUNK_KINDS = ["undecodable boxes", "valid boxes with junk bearers", "oversize"] as const;
export type JunkKind = (typeof JUNK_KINDS)[number];

const REPLIES = "junk.answers.";
/** As many go out before one of them has been answered: a callout denies what is too much at once. */
const CHUNK = 100;
const LONGEST_MS = 60_000;

export async function junkCallout(brokerPort: number): Promise<JunkCallout> {
  const waiting = new Map<string, () => void>();
  const between = await startBetween(brokerPort, REPLIES, (reply) => {
    waiting.get(reply)?.();
    waiting.delete(reply);
  });
  let number = 0;
  const publish = async (made: Made): Promise<string> => {
    const reply = `${REPLIES}${(number += 1)}`;
    const headers = made.sender === undefined ? {} : { headers: { [Header.ServerXkey]: made.sender } };
    await between.say(sys.userAuth, { reply, data: made.bytes, ...headers });
    return reply;
  };
  /** Messages of one connection are taken in order: whoever is answered after others has come after them. */
  const taken = async (probe: Made): Promise<void> => {
    const reply = await publish(probe);
    await new Promise<void>((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error("the callout does not answer any more")), LONGEST_MS);
      waiting.set(reply, () => {
        clearTimeout(timer);
        resolve();
      });
    });
  };
  return {
    url: between.url,
    send: async (kind, count, keys) => {
      const make = makers(keys);
      const [probe = nothing] = make["valid boxes with junk bearers"];
      for (let sent = 0; sent < count; sent += 1) {
        const of = make[kind][sent % make[kind].length] ?? nothing;
        if (sent % CHUNK === CHUNK - 1) await taken(probe());
        else await publish(of());
      }
    },
    stop: () => between.stop(),
  };
}

const nothing = (): Made => ({ bytes: new Uint8Array() });

function makers(keys: AuthKeys): Readonly<Record<JunkKind, readonly (() => Made)[]>> {
  const curve = newCurveKey();
  const stranger = newCurveKey();
  const server = keyFromSeed(Buffer.from(createServer().getSeed()).toString());
  const user = newKey("user").publicKey;
  const ours = keys.curves[0]?.publicKey ?? "";
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
            user_nkey: user,
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
      () => ({ bytes: Buffer.concat([Buffer.from("xkv1"), randomBytes(1500)]), sender: stranger.publicKey }),
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
