/**
 * Issued authority over a real broker, with the auth service and the delivery service as real processes (§13.15, §13.1): a
 * caller of the versioned rail whose source is ended by the operator, and a credential redeemed under a handle whose parent
 * is revoked. Both of them are connected when it happens.
 *
 * Nobody mints issued credentials yet, so the JWTs that connect here are made from the issuance's own permissions.
 */
import { encodeUser } from "@nats-io/jwt";
import { type NatsConnection, connect, jwtAuthenticator } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { type Issuance, createIssuance } from "../../services/auth/plane/issuance.ts";
import { planeParts } from "../../services/auth/plane-parts.ts";
import type { PlaneParts } from "../../services/auth/plane/parts.ts";
import type { Connection } from "../../shared/broker/connect.ts";
import { toCotalError } from "../../shared/protocol/base/errors.ts";
import { dotForm, principal } from "../../shared/protocol/base/principals.ts";
import { RetireLifecycleAnswer } from "../../shared/protocol/endpoint/auth-shapes.ts";
import type { ExchangeAnswer } from "../../shared/protocol/endpoint/exchange-shapes.ts";
import {
  type Caller,
  EndpointName,
  callerOf,
  deriveReply,
  endpointSubjects,
  parseRequestSubject,
} from "../../shared/protocol/endpoint/grammar.ts";
import { AttemptRow, type IssuedPermissions, issuedKey } from "../../shared/protocol/ledger/issued-rows.ts";
import { CredentialRow, ledgerKey } from "../../shared/protocol/ledger/rows.ts";
import type { HandleSource, IssuedRef } from "../../shared/protocol/ledger/source-rows.ts";
import { type SigningKey, newKey } from "../../shared/trust/keys.ts";
import { type AuthService, startAuthService } from "../support/auth-service.ts";
import {
  type BarrierCaller,
  type DeliveryService,
  barrierCaller,
  startDeliveryService,
} from "../support/delivery-service.ts";
import { accountKeys, frontRoot } from "../support/holders.ts";
import { grantOf, handle, lifecycleOf, refOf, request } from "../support/issued.ts";
import { failure } from "../support/refusal.ts";
import { type TestSpace, startSpace } from "../support/space.ts";
import { storeSource } from "../support/store-plane.ts";

const ENDPOINT = "com.example.echo";
const INSTANCE = { instanceId: "i".repeat(26), epoch: 1 };
const rails = endpointSubjects("main");

let space: TestSpace;
let auth: AuthService;
let delivery: DeliveryService;
let barrier: BarrierCaller;
let store: Connection;

beforeAll(async () => {
  space = await startSpace({ auth: "user" });
  delivery = startDeliveryService(space);
  auth = await startAuthService(space, { waitMs: 60_000 });
  await delivery.ready();
  store = await space.openStore();
  barrier = await barrierCaller(space, "auth-server");
}, 120_000);
afterAll(async () => {
  await delivery.kill("SIGTERM");
  await auth.stop();
  await space.stop();
});

/** The parts of whoever mints: its own connection to the store, and the delivery service to end connections. */
function parts(): PlaneParts {
  return planeParts({ ...storeSource(space, store), calls: () => barrier.call });
}
const issuance = (): Issuance => createIssuance(parts());

type Person = ReturnType<typeof principal> & { readonly uid: string; readonly answer: ExchangeAnswer };

async function signedIn(actor: string): Promise<Person> {
  const answer = await auth.signIn(actor);
  return { ...principal(answer.owner, actor), uid: answer.lifecycleUid, answer };
}

/** A connection in front under this name with these permissions; it does not come back by itself. */
async function connected(who: Person, key: SigningKey, permissions: IssuedPermissions): Promise<NatsConnection> {
  const { accountKey, signer } = accountKeys(space, "main", "front");
  const jwt = await encodeUser(dotForm(who), key.publicKey, signer.pair, {
    issuer_account: accountKey,
    ...permissions,
  });
  const nc = await connect({
    servers: space.url,
    timeout: 3000,
    reconnect: false,
    authenticator: jwtAuthenticator(jwt, new TextEncoder().encode(key.seedText())),
  });
  onTestFinished(() => nc.close());
  return nc;
}

const attemptOf = async (ref: IssuedRef): Promise<AttemptRow> => {
  const raw = await parts().ledger.read("issued", issuedKey.attempt(ref));
  return AttemptRow.parse(raw.kind === "value" ? raw.value : undefined);
};
const stateOf = async (uid: string, id: string): Promise<CredentialRow["state"]> => {
  const raw = await parts().ledger.read("auth", ledgerKey.cred(uid, id));
  return CredentialRow.parse(raw.kind === "value" ? raw.value : undefined).state;
};

const expires = (): number => Math.floor(Date.now() / 1000) + 600;
const callerOfRef = (ref: IssuedRef): Caller => callerOf(ref);

/** A server of both rails that asks, for each call, what its caller was issued. */
async function served(): Promise<void> {
  const nc = await frontRoot(space, "main");
  const { resolve } = issuance();
  const answer = async (subject: string): Promise<object> => {
    const asked = parseRequestSubject(subject);
    if (asked === undefined) return { refused: "malformed" };
    const { evidence } = await resolve(callerOf(asked));
    return { generation: evidence.ref.generation };
  };
  for (const { subject } of rails.serve(ENDPOINT, INSTANCE.instanceId, "say")) {
    nc.subscribe(subject, {
      callback: (_, { subject: from }) => {
        const asked = parseRequestSubject(from);
        if (asked === undefined) return;
        void answer(from)
          .catch((thrown: unknown) => ({ refused: toCotalError(thrown).code }))
          .then((body) => nc.publish(deriveReply(asked, INSTANCE), JSON.stringify(body)));
      },
    });
  }
  await nc.flush();
}

let nonces = 0;
/** One call on the caller's own rail, and the answer that comes on its reply rail. */
async function say(nc: NatsConnection, caller: Caller): Promise<unknown> {
  const nonce = `n${String((nonces += 1))}`.padEnd(26, "x");
  const answers = nc.subscribe(rails.replyTo(caller, nonce), { max: 1, timeout: 20_000 });
  await nc.flush();
  nc.publish(rails.one(ENDPOINT, "say", caller, nonce));
  for await (const message of answers) return message.json();
  throw new Error("the connection has ended");
}

function ceilingOf(caller: Caller): IssuedPermissions {
  const reply = rails.replyGrant(caller);
  return {
    pub: { allow: [rails.oneGrant(ENDPOINT, "say", caller)], deny: [] },
    sub: { allow: [reply], deny: [`${reply}.>`] },
  };
}

describe("PI.06 an issued caller", () => {
  test("PI.06 PI.04 the operator retires a source: its connection is gone, its call refused; its holder's own sign-in stands", async () => {
    const [holder, source] = await Promise.all([signedIn("holder"), signedIn("source")]);
    const ref = refOf(holder);
    const caller = callerOfRef(ref);
    const key = newKey("user");
    await issuance().issue(
      request(ref, {
        sources: [...(await grantOf(parts().ledger, holder)), lifecycleOf(source)],
        permissions: ceilingOf(caller),
        credential: { id: key.publicKey, expires: expires() },
      }),
    );
    await served();
    const nc = await connected(holder, key, (await issuance().resolve(caller)).evidence.permissions);
    expect(await say(nc, caller)).toEqual({ generation: ref.generation });

    const { owner, actor, uid: lifecycleUid } = source;
    const retired = await space.call(
      "retire-lifecycle",
      { owner, actor, lifecycleUid },
      { endpoint: EndpointName.Auth, deadlineMs: 45_000 },
    );
    expect(RetireLifecycleAnswer.parse(retired)).toEqual({ opId: `retire-${lifecycleUid}` });
    expect(nc.isClosed()).toBe(true);
    expect(await attemptOf(ref)).toMatchObject({ state: "retired", by: `retire-${lifecycleUid}` });
    expect(await stateOf(holder.uid, key.publicKey)).toBe("revoked");

    // The broker alone would let this key in again: the ledger is what says no.
    const again = await connected(holder, key, ceilingOf(caller));
    expect(await say(again, caller)).toEqual({ refused: "expired" });
    const own = await auth.connect(holder.answer);
    expect(own.nc.isClosed()).toBe(false);
    const late = request(ref, { sources: await grantOf(parts().ledger, holder) });
    expect(await failure(issuance().issue(late))).toMatchObject({ code: "expired" });
  }, 90_000);
});

describe("W131L.02 a handle is revoked", () => {
  test("W131L.02 revoke parent: child connection gone, and refused for good; a stranger's under another handle stays", async () => {
    const [child, stranger] = await Promise.all([signedIn("child"), signedIn("stranger")]);
    const NONE = { pub: { allow: [], deny: [">"] }, sub: { allow: [], deny: [">"] } };
    const redeemed = async (who: Person, ...handles: HandleSource[]) => {
      const key = newKey("user");
      const entry = { principal: principal(who.owner, who.actor), uid: who.uid, credentialId: key.publicKey, handles };
      await issuance().redeem({ ...entry, expires: expires() });
      return { entry, nc: await connected(who, key, NONE) };
    };
    const one = await redeemed(child, handle("parent"), handle("leaf"));
    const other = await redeemed(stranger, handle("elsewhere"));
    await issuance().revokeHandle(handle("parent"));
    expect([one.nc.isClosed(), other.nc.isClosed()]).toEqual([true, false]);
    expect(await stateOf(child.uid, one.entry.credentialId)).toBe("revoked");
    expect(await stateOf(stranger.uid, other.entry.credentialId)).toBe("active");
    const again = issuance().redeem({ ...one.entry, credentialId: newKey("user").publicKey, expires: expires() });
    expect(await failure(again)).toMatchObject({ code: "expired" });
  }, 60_000);
});
