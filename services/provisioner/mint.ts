/**
 * Static minting (§9, decision H8): a lifecycle is activated in the ledger, its durables and read
 * list are made, and only then does its credential leave.
 *
 * Invariants
 * 1. Everything that can refuse, refuses before the first write: names, lists, capabilities, size.
 * 2. The operation's id comes from the caller's own user key, so a retry after any crash converges
 *    on the same lifecycle and another caller can't take it over.
 * 3. The seed never comes here: the caller keeps it and sends the public key.
 * 4. Capabilities are part of what is asked for; the commands that they open are read anew at each mint, so a
 *    renewal brings what has been registered since.
 */
import { ensureLifecycleDurables, ensureRoleQueue } from "../../shared/broker/lifecycle-durables.ts";
import { Account } from "../../shared/grants/row.ts";
import { type BuiltProfile, PROFILES, type ScopeOf } from "../../shared/grants/matrix.ts";
import { type Activated, activate } from "../../shared/ledger/activation.ts";
import { enterCredential } from "../../shared/ledger/entry.ts";
import { type ResolvedCapabilities, resolveCapabilities } from "../../shared/ledger/capabilities.ts";
import { adoptRestored } from "../../shared/ledger/restored.ts";
import { createOrRead } from "../../shared/ledger/store.ts";
import { canonicalDigest } from "../../shared/protocol/base/canonical.ts";
import { minimalList } from "../../shared/protocol/base/channels.ts";
import { CotalError, ErrorCode, Outcome, badRequest } from "../../shared/protocol/base/errors.ts";
import {
  type Principal,
  dotForm,
  drawLifecycleUid,
  drawNonce,
  principal,
} from "../../shared/protocol/base/principals.ts";
import { channelLists } from "../../shared/protocol/chat/acl-lists.ts";
import { checkName } from "../../shared/protocol/chat/presence.ts";
import { grantedCapabilities } from "../../shared/protocol/endpoint/capabilities.ts";
import type { MintAnswer, MintArgs } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import { AclRow, ledgerKey } from "../../shared/protocol/ledger/rows.ts";
import { mintUser } from "../../shared/trust/jwt.ts";
import { staticOwner, systemOwner } from "../../shared/trust/owner.ts";
import { type Authority, type SpaceContext, staticAuthority } from "./context.ts";
import type { z } from "zod";

type Profile = MintArgs["profile"];

/** What a mint comes to once its arguments are checked. */
type Plan = {
  readonly profile: Profile;
  readonly principal: Principal;
  readonly name: string;
  readonly userKey: string;
  /** Read list of the ACL row; `undefined` for a profile that reads nothing (decision H34). */
  readonly reads: readonly string[] | undefined;
  readonly posts: readonly string[];
  readonly role: string | undefined;
  /** Absent: none. */
  readonly capabilities?: readonly string[];
};

/** What a profile other than an agent reads. */
const READS: Readonly<Record<Exclude<Profile, "agent">, readonly string[] | undefined>> = {
  observer: [">"],
  admin: [">"],
  "channel-writer": [">"],
  probe: undefined,
};

export async function mint(
  context: SpaceContext,
  managerInstance: string,
  args: MintArgs,
): Promise<z.infer<typeof MintAnswer>> {
  const authority = staticAuthority(context);
  const plan = planOf(context, authority, args);
  const opened = await demandRegistered(authority, plan);
  const seconds = Math.floor(context.now() / 1000);
  const expires = seconds + PROFILES[plan.profile].lifeSeconds;
  const trial = { uid: drawLifecycleUid(context.random), inboxNonce: drawNonce(context.random) };
  await mintJwt(context, authority, { ...plan, opened }, trial, expires);

  const activated = (await adopt(context, authority, plan)) ?? (await begin(context, authority, managerInstance, plan));
  await enterCredential(authority.ledger, {
    principal: plan.principal,
    uid: activated.uid,
    credentialId: plan.userKey,
    expires,
  });
  const jwt = await mintJwt(context, authority, { ...plan, opened }, activated, expires);
  return { jwt, principal: dotForm(plan.principal), uid: activated.uid, expires };
}

/** Whom a restore has enrolled goes on with his inbox: the first mint of the name has it. */
async function adopt(context: SpaceContext, { ledger }: Authority, plan: Plan): Promise<Activated | undefined> {
  if (plan.reads === undefined) return undefined;
  const adopted = await adoptRestored(ledger, plan.principal, listOf(context, plan, plan.reads));
  if (adopted !== undefined && plan.role !== undefined) {
    await ensureRoleQueue(context.store, context.writer, context.space, plan.role);
  }
  return adopted;
}

function begin(context: SpaceContext, { ledger }: Authority, managerInstance: string, plan: Plan): Promise<Activated> {
  return activate(
    ledger,
    {
      opId: `mint-${plan.userKey}`,
      principal: plan.principal,
      requestDigest: canonicalDigest({ ...plan, reads: plan.reads ?? null, role: plan.role ?? null }),
      managerInstance,
      now: context.now(),
      random: context.random,
    },
    ({ uid }) => prepare(context, plan, uid),
  );
}

function planOf({ space }: SpaceContext, authority: Authority, args: MintArgs): Plan {
  const { profile, userKey } = args;
  const owner = staticOwner(authority.keys.ownerSecret, args.owner);
  if (owner === systemOwner(authority.keys.ownerSecret, space)) {
    throw badRequest("this owner is the space itself: its names are its daemons'", "use a label such as acme");
  }
  const name = checkName(args.name);
  const common = { profile, principal: principal(owner, args.actor), name, userKey };
  if (profile !== "agent") {
    const extra = (["subscribe", "allowSubscribe", "allowPublish", "role", "capabilities"] as const).find(
      (key) => args[key] !== undefined,
    );
    if (extra !== undefined) throw badRequest(`${profile} takes no ${extra}`, "leave it out, or mint an agent");
    return { ...common, reads: READS[profile], posts: [], role: undefined };
  }
  const { allowSubscribe, allowPublish } = channelLists(args);
  // Normalised, so that a renewal made from the credential's own lists is the same request.
  const capabilities = grantedCapabilities(args.capabilities ?? []);
  return {
    ...common,
    reads: minimalList(allowSubscribe),
    posts: minimalList(allowPublish),
    role: args.role,
    ...(capabilities.length === 0 ? {} : { capabilities }),
  };
}

/** What its capabilities open. Refuses an endpoint that nobody has registered: the credential would open nothing. */
async function demandRegistered({ ledger }: Authority, { capabilities = [] }: Plan): Promise<ResolvedCapabilities> {
  const opened = await resolveCapabilities(ledger, capabilities);
  const [unknown] = opened.unregistered;
  if (unknown === undefined) return opened;
  throw new CotalError(ErrorCode.FailedPrecondition, `nobody has registered the endpoint ${unknown}`, {
    outcome: Outcome.NotExecuted,
    next: "start what serves it first (cotal endpoints lists what does), or leave the capability out",
  });
}

async function mintJwt(
  context: SpaceContext,
  { keys }: Authority,
  plan: Plan & { readonly opened: ResolvedCapabilities },
  { uid, inboxNonce }: { readonly uid: string; readonly inboxNonce: string },
  expires: number,
): Promise<string> {
  const scope = {
    space: context.space,
    holder: { principal: plan.principal, uid },
    inboxNonce,
    allowSubscribe: plan.reads ?? [],
    allowPublish: plan.posts,
    ...(plan.role === undefined ? {} : { role: plan.role }),
    commands: plan.opened.commands,
    serves: plan.opened.serves,
  };
  const { jwt } = await mintUser<BuiltProfile>({
    profile: plan.profile,
    scope: scope as unknown as ScopeOf<BuiltProfile>,
    account: Account.Front,
    accountKey: keys.file.front,
    signer: keys.frontSigner,
    userKey: plan.userKey,
    expires,
    limits: context.settings.limits.agent,
    name: plan.name,
    ...(plan.capabilities === undefined ? {} : { capabilities: plan.capabilities }),
  });
  return jwt;
}

/** What a lifecycle needs before its credential may leave; safe to run again. */
async function prepare(context: SpaceContext, plan: Plan, uid: string): Promise<void> {
  const { store, space, writer } = context;
  if (plan.profile === "agent") await ensureLifecycleDurables(store, writer, { ...plan, space, uid });
  if (plan.reads === undefined) return;
  await enterAcl(context, plan, uid, plan.reads);
}

async function enterAcl(context: SpaceContext, plan: Plan, uid: string, reads: readonly string[]): Promise<void> {
  const { ledger } = staticAuthority(context);
  const row = await createOrRead(
    ledger,
    "acl",
    ledgerKey.acl(plan.principal, uid),
    AclRow,
    listOf(context, plan, reads),
  );
  if (row.value.credential === plan.userKey) return;
  throw new CotalError(ErrorCode.Conflict, "the read list of this lifecycle belongs to another credential", {
    outcome: Outcome.NotExecuted,
    next: "mint under another actor",
  });
}

function listOf({ now }: SpaceContext, plan: Plan, reads: readonly string[]): AclRow {
  return {
    v: 1,
    name: plan.name,
    allowSubscribe: [...reads],
    ...(plan.role === undefined ? {} : { role: plan.role }),
    ...(plan.capabilities === undefined ? {} : { capabilities: [...plan.capabilities] }),
    durables: plan.profile === "agent",
    credential: plan.userKey,
    at: now(),
  };
}
