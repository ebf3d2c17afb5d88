/**
 * The edge of the auth service on a ledger in memory: the real authority, exchange and keys of one space,
 * without a broker. A test looks at every write, breaks the ledger, or moves the clock.
 */
import { createTurns } from "../../shared/ledger/turns.ts";
import { randomBytes } from "node:crypto";
import {
  type ConnectLimits,
  DEFAULT_LIMIT_SIZES,
  createConnectLimits,
} from "../../services/auth/edge/connect-limits.ts";
import { type ExchangeEvent, type ExchangeOptions, createExchange } from "../../services/auth/edge/exchange.ts";
import type { IdentityProvider } from "../../services/auth/edge/idp.ts";
import { DEFAULT_PROBES, createProbingBudget } from "../../services/auth/edge/probing-budget.ts";
import { DEFAULT_WINDOW, createSelectionWindows } from "../../services/auth/edge/selection-windows.ts";
import type { ActorAdministration, ActorLists, Authority } from "../../services/auth/plane/authority-type.ts";
import { createAuthority } from "../../services/auth/plane/authority.ts";
import { type Chat, createChat } from "../../services/auth/plane/chat/chat.ts";
import { LIVE } from "../../services/auth/plane/liveness.ts";
import type { EnrolPolicy, PlaneParts } from "../../services/auth/plane/parts.ts";
import { Account } from "../../shared/grants/row.ts";
import { resolveCapabilities } from "../../shared/ledger/capabilities.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import { type Principal, drawNonce } from "../../shared/protocol/base/principals.ts";
import { Face } from "../../shared/protocol/endpoint/views.ts";
import { bearerAudience, bearerIssuer } from "../../shared/trust/auth-folder.ts";
import { type BearerSigner, bearerSigner, newBearerJwk } from "../../shared/trust/bearer.ts";
import { mintUser } from "../../shared/trust/jwt.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { ownerToken } from "../../shared/trust/owner.ts";
import { memoryHolderPage } from "./chat-parts.ts";
import { type MemoryLedger, memoryLedger } from "./memory-ledger.ts";
import { EXECUTOR } from "./plane-parts.ts";

export type EdgeRig = {
  readonly space: string;
  readonly ledger: MemoryLedger;
  readonly authority: Authority & ActorAdministration;
  readonly chat: Chat;
  readonly ownerSecret: Uint8Array;
  readonly idp: IdentityProvider;
  readonly limits: ConnectLimits;
  readonly signer: BearerSigner;
  readonly issuer: string;
  readonly audience: string;
  readonly events: ExchangeEvent[];
  readonly clock: { now: number };
  readonly ownerOf: (subject: string) => string;
  readonly exchange: ReturnType<typeof createExchange>;
  /** The same exchange with something else in it. */
  readonly exchangeWith: (over: Partial<ExchangeOptions>) => ReturnType<typeof createExchange>;
};

export type EdgeRigOptions = {
  readonly space?: string;
  readonly authAccount?: string;
  readonly idp?: IdentityProvider;
  readonly policy?: EnrolPolicy;
  readonly limits?: ConnectLimits;
  /** What an actor gets that signs in for the first time. */
  readonly defaults?: Partial<ActorLists>;
  /** Rules of the space in place of the rig's own. */
  readonly plane?: Partial<PlaneParts>;
  /** Wraps the ledger: breaks it, slows it, watches it. */
  readonly around?: (store: LedgerStore) => LedgerStore;
};

const IDP_ISSUER = "https://idp.test";

/** Believes `subject:<name>`; the tests of `idp.ts` are about real tokens. */
export const TRUSTING: IdentityProvider = {
  verify: (idToken) => {
    const seconds = Math.floor(Date.now() / 1000);
    return Promise.resolve(
      idToken.startsWith("subject:")
        ? {
            ok: true,
            person: { issuer: IDP_ISSUER, subject: idToken.slice(8) },
            issued: seconds,
            expires: seconds + 3600,
          }
        : { ok: false, fault: "malformed" },
    );
  },
};

export function edgeRig(options: EdgeRigOptions = {}): EdgeRig {
  const { space = "main", idp = TRUSTING, policy = "auto", around = (store) => store } = options;
  const clock = { now: Date.now() };
  const limits = options.limits ?? createConnectLimits(DEFAULT_LIMIT_SIZES, () => clock.now);
  const ledger = memoryLedger();
  const ownerSecret = randomBytes(32);
  const signer = bearerSigner(newBearerJwk());
  const account = newKey("account");
  const issuer = bearerIssuer(space, options.authAccount ?? account.publicKey);
  const audience = bearerAudience(space);
  const events: ExchangeEvent[] = [];
  const store = around(ledger.store());
  const parts: PlaneParts = {
    space,
    ledger: store,
    holdsPlane: () => true,
    claimStands: () => Promise.resolve(true),
    executor: () => EXECUTOR,
    livenessOf: () => Promise.resolve(LIVE),
    plane: () => undefined,
    makeDurables: () => Promise.resolve(),
    makeQueue: () => Promise.resolve(),
    isSwept: () => Promise.resolve(true),
    endConnections: () => Promise.resolve(true),
    connectionsOf: () => Promise.resolve({ kind: "none" }),
    ends: createTurns(),
    removeRemains: () => Promise.resolve(),
    frontiers: () => Promise.resolve({}),
    answerBytes: () => 100_000,
    ledgerPage: () => Promise.resolve({ rows: [] }),
    tryMint: async (row) => {
      await mintUser({
        profile: "agent",
        scope: {
          space,
          holder: { principal: row, uid: row.lifecycleUid },
          inboxNonce: drawNonce(randomBytes),
          allowSubscribe: row.allowSubscribe,
          allowPublish: row.allowPublish,
          ...(row.role === undefined ? {} : { role: row.role }),
          ...(await resolveCapabilities(store, row.capabilities)),
        },
        account: Account.Front,
        accountKey: account.publicKey,
        signer: account,
        userKey: newKey("user").publicKey,
        expires: 2_000_000_000,
        limits: { subs: 1000, payload: 262_144 },
        name: row.name,
      });
    },
    isReservedOwner: () => false,
    policy,
    defaults: { allowSubscribe: ["general"], allowPublish: ["general"], capabilities: [], ...options.defaults },
    actorsPerOwner: 100,
    frontAccount: `A${"F".repeat(55)}`,
    managerInstance: "i".repeat(26),
    now: () => clock.now,
    random: randomBytes,
    ...options.plane,
  };
  const authority = createAuthority(parts);
  const chat = createChat(
    { ...parts, slotsPerOwner: 8, holderPage: memoryHolderPage(store) },
    { authority, bearer: { issuer, audience, signer } },
  );
  const exchangeWith = (over: Partial<ExchangeOptions>) =>
    createExchange({
      space,
      ownerSecret,
      idp,
      authority,
      limits,
      bearer: { issuer, audience, signer },
      sentinel: "sentinel.of.tests",
      budget: createProbingBudget(DEFAULT_PROBES, () => clock.now),
      windows: createSelectionWindows(DEFAULT_WINDOW, () => clock.now),
      now: () => clock.now,
      clock: () => clock.now,
      random: randomBytes,
      onEvent: (event) => events.push(event),
      ...over,
    });
  return {
    space,
    ledger,
    authority,
    chat,
    ownerSecret,
    idp,
    limits,
    signer,
    issuer,
    audience,
    events,
    clock,
    ownerOf: (subject) => ownerToken(ownerSecret, IDP_ISSUER, subject),
    exchange: exchangeWith({}),
    exchangeWith,
  };
}

/** Calls an exchange and reads its bearer; throws if it gave none. */
export async function bearerOf(
  rig: Pick<EdgeRig, "exchange" | "space">,
  actor: string,
  idToken = "subject:person",
): Promise<{
  readonly bearer: string;
  readonly principal: Principal;
  readonly uid: string;
  readonly sentinel: string;
}> {
  const { status, body } = await rig.exchange(
    { space: rig.space, idToken, actor },
    { face: Face.Loopback, address: "127.0.0.1" },
  );
  if (status !== 200) throw new Error(`the exchange refused: ${JSON.stringify(body)}`);
  const said = body as { bearer: string; owner: string; actor: string; lifecycleUid: string; sentinel: string };
  const principal = { owner: said.owner, actor: said.actor };
  return { bearer: said.bearer, principal, uid: said.lifecycleUid, sentinel: said.sentinel };
}
