/**
 * The least that answers an auth callout: read, decide, answer. Tests put their own decision in; the
 * bench takes `letIn`, which reads, signs and seals and asks nothing else, as the bare side.
 */
import { type NatsConnection, connect, jwtAuthenticator } from "@nats-io/transport-node";
import { sys } from "../../shared/protocol/base/broker-subjects.ts";
import { Header } from "../../shared/protocol/base/headers.ts";
import {
  type CalloutRequest,
  type RequestFault,
  type Responder,
  allowResponse,
  readCalloutRequest,
} from "../../shared/trust/callout.ts";
import type { SigningKey } from "../../shared/trust/keys.ts";
import { signedJwt } from "../../shared/trust/nats-jwt.ts";

export const CALLOUT_QUEUE = "callout";

export const nowSeconds = (): number => Math.floor(Date.now() / 1000);

/** A connection's answer; nothing to leave the broker waiting. */
export type Answer = (request: CalloutRequest) => Uint8Array | undefined | Promise<Uint8Array | undefined>;

export type RunningResponder = {
  /** Every request that could be read, in order. */
  readonly requests: readonly CalloutRequest[];
  /** Why the others could not. */
  readonly faults: readonly RequestFault[];
  /** The bytes as they came, with the header that names the server's curve key. */
  readonly raw: readonly { readonly bytes: Uint8Array; readonly sender: string | undefined }[];
  readonly stop: () => Promise<void>;
};

export type ResponderOptions = {
  readonly by: Responder;
  readonly answer: Answer;
  /** `null` for a plain subscription. */
  readonly queue?: string | null;
  /** Keeps no bytes and no requests: for a bench. */
  readonly forgetful?: boolean;
};

/** Serves until stopped; the broker has taken the subscription when this resolves. */
export async function startResponder(nc: NatsConnection, options: ResponderOptions): Promise<RunningResponder> {
  const { by, answer, queue = CALLOUT_QUEUE, forgetful = false } = options;
  const [requests, faults, raw]: [
    CalloutRequest[],
    RequestFault[],
    { bytes: Uint8Array; sender: string | undefined }[],
  ] = [[], [], []];
  const subscription = nc.subscribe(sys.userAuth, {
    ...(queue === null ? {} : { queue }),
    callback: (error, message) => {
      if (error !== null) return;
      const sender = message.headers?.get(Header.ServerXkey);
      const read = readCalloutRequest(message.data, sender, { ...by, nowSeconds: nowSeconds() });
      if (!forgetful) raw.push({ bytes: message.data, sender });
      if (!read.ok) {
        faults.push(read.fault);
        return;
      }
      if (!forgetful) requests.push(read.request);
      const given = answer(read.request);
      if (given instanceof Promise) {
        void given.then((bytes) => bytes !== undefined && message.respond(bytes));
      } else if (given !== undefined) message.respond(given);
    },
  });
  await nc.flush();
  return { requests, faults, raw, stop: () => subscription.drain() };
}

/** The bare answer: everybody is let in, with a small user JWT of that account. */
export function letIn(by: Responder, front: { readonly account: string; readonly signer: SigningKey }): Answer {
  return (request) => allowResponse(request, by, bareUserJwt(request.userKey, front), nowSeconds());
}

/** A user JWT without the product's matrix: what is not named is allowed. */
export function bareUserJwt(
  userKey: string,
  { account, signer }: { readonly account: string; readonly signer: SigningKey },
  grants: Readonly<Record<string, unknown>> = {},
  life = 600,
): string {
  const now = nowSeconds();
  return signedJwt(
    {
      sub: userKey,
      name: "bare",
      iat: now,
      exp: now + life,
      nats: {
        subs: -1,
        data: -1,
        payload: -1,
        ...grants,
        ...(signer.publicKey === account ? {} : { issuer_account: account }),
        type: "user",
      },
    },
    signer,
  );
}

/**
 * What a responder's own user may do: serve requests in its queue group, and answer each once. `resp`
 * alone makes every other publish a refusal; a `deny` beside it would refuse the answers too.
 */
const RESPONDER_GRANTS = {
  sub: { allow: [`${sys.userAuth} ${CALLOUT_QUEUE}`] },
  resp: { max: 1, ttl: 10_000_000_000 },
} as const;

/** Connects a responder's user. */
export function connectResponder(
  url: string,
  user: SigningKey,
  auth: { readonly account: string; readonly signer: SigningKey },
  grants: Readonly<Record<string, unknown>> = RESPONDER_GRANTS,
): Promise<NatsConnection> {
  const jwt = bareUserJwt(user.publicKey, auth, grants);
  return connect({
    servers: url,
    timeout: 3000,
    reconnect: false,
    authenticator: jwtAuthenticator(jwt, Buffer.from(user.seedText())),
  });
}
