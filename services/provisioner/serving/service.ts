/**
 * Registering somebody else's endpoint (§13.7, supplement A), and keeping its credential alive.
 *
 * In order: the contract is read · the ledger shuts the instance's gate (`shared/ledger/serving.ts`: whose
 * name it is, the instance's id, the end of its predecessor) · artifacts · governance head · spec · status ·
 * the gate opens · credential row · the credential leaves. Each step is found done by a retry.
 *
 * Invariants
 * 1. Everything that can refuse, refuses before the first write: names, contract, size of the credential.
 * 2. The owner comes from the caller's subject. Of what it says of itself only the contract and its key count.
 * 3. An owner registers as often as a burst allows, and then slowly: every registration leaves rows for good.
 * 4. A credential serves the commands of the registered contract, on the rails of its own incarnation, and
 *    ends within minutes: no daemon can revoke a JWT, so what an instance left behind ends by itself.
 */
import { createHash } from "node:crypto";
import { leaderLast } from "../../../shared/broker/reads.ts";
import { Account } from "../../../shared/grants/row.ts";
import {
  CotalError,
  ErrorCode,
  Outcome,
  toCotalError,
  withOutcome,
  RETRY_AFTER,
} from "../../../shared/protocol/base/errors.ts";
import { dotForm, drawLifecycleUid, encodeToken } from "../../../shared/protocol/base/principals.ts";
import type { FetchArtifact } from "../../../shared/protocol/contract/closure.ts";
import { fetchCluster } from "../../../shared/protocol/contract/resolve.ts";
import type { Caller } from "../../../shared/protocol/endpoint/grammar.ts";
import { planeSubject } from "../../../shared/protocol/endpoint/planes.ts";
import type {
  RegisterAnswer,
  ServeCredential,
  ServiceRegisterArgs,
  ServiceRenewArgs,
} from "../../../shared/protocol/endpoint/provisioner-shapes.ts";
import { servingPrincipal } from "../../../shared/protocol/ledger/endpoint-rows.ts";
import { recordKey } from "../../../shared/protocol/ledger/record-kinds.ts";
import { RegistrationStatus } from "../../../shared/protocol/ledger/service-rows.ts";
import { mintUser } from "../../../shared/trust/jwt.ts";
import { publishArtifacts } from "../artifacts.ts";
import type { Serving, SpaceContext } from "../context.ts";
import { changeJson } from "../../../shared/broker/json-rows.ts";
import { readSpec, specOf, writeSpec, writeStatus } from "../service-records.ts";
import { demandForeign } from "./foreign.ts";
import { checkHead, moveHead } from "./governance.ts";
import { readSubmitted } from "./submitted.ts";

export async function registerService(
  context: SpaceContext,
  { principal: { owner } }: Caller,
  { endpoint, instanceId: known, userKey, clusterDigests, artifacts }: ServiceRegisterArgs,
): Promise<RegisterAnswer> {
  demandForeign(endpoint);
  const { serving } = context;
  demandPace(context, owner);
  const published = publishedIn(context);
  const spec = specOf(endpoint, owner, [...new Set(clusterDigests)]);
  const { submitted, commands } = await beforeAnything(async () => {
    const read = await readSubmitted(clusterDigests, artifacts, published);
    const names = read.commands.map(({ name }) => name);
    if (serving !== undefined) await mint(context, serving, { ...TRIAL, endpoint, owner, userKey, commands: names });
    await checkHead(context, { spec, submitted: read, published });
    return { submitted: read, commands: names };
  });

  const begun =
    serving === undefined
      ? await beginOpen(context, endpoint, known)
      : await serving.ledger.begin({ endpoint, owner, userKey, instanceId: known });
  const { instanceId, epoch } = begun;
  await publishArtifacts(context, submitted.artifacts);
  const own = { ...spec, epoch };
  await moveHead(context, { opId: begun.opId, instanceId, spec: own, submitted, published });
  const registrationRevision = await writeSpec(context, instanceId, own);
  const status = { epoch, state: "starting", observedSpecRevision: registrationRevision };
  await writeStatus(context, { endpoint, instanceId }, status);
  const answer = { registrationRevision, instanceId, epoch };
  if (serving === undefined) return answer;
  await serving.ledger.open({ ...begun, endpoint, registrationRevision });
  const minting = { endpoint, owner, userKey, commands, instanceId, epoch };
  return { ...answer, credential: await enterAndMint(context, serving, minting) };
}

/** What is registered stays: a service that starts over and over is slowed down, and told so. */
function demandPace({ registrations }: SpaceContext, owner: string): void {
  const wait = registrations.wait(owner);
  registrations.take(owner);
  if (wait === 0) return;
  throw new CotalError(ErrorCode.ResourceExhausted, "this owner's endpoints register too often", {
    outcome: Outcome.NotExecuted,
    next: "ask again then; if a service starts over and over, find out why",
    details: [{ kind: RETRY_AFTER, ms: wait * 1000 }],
  });
}

/** What refuses here has written nothing, and the refusal says so: it may be mended and asked again. */
async function beforeAnything<T>(check: () => Promise<T>): Promise<T> {
  try {
    return await check();
  } catch (thrown) {
    throw withOutcome(toCotalError(thrown), Outcome.NotExecuted);
  }
}

/** The same instance and epoch, for longer; of the contract that it registered. */
export async function renewService(
  context: SpaceContext,
  { principal: { owner } }: Caller,
  { endpoint, instanceId, epoch, userKey }: ServiceRenewArgs,
): Promise<RegisterAnswer> {
  demandForeign(endpoint);
  const found = await readSpec(context, endpoint, instanceId);
  if (found === undefined || found.spec.owner !== owner) {
    throw refuse(ErrorCode.NotFound, `${endpoint} has no instance ${instanceId} of this owner`, "register it again");
  }
  if (found.spec.epoch !== epoch) {
    throw refuse(ErrorCode.Expired, `epoch ${epoch} of this instance is over`, "stop this process, or register again");
  }
  const answer = { registrationRevision: found.revision, instanceId, epoch };
  const { serving } = context;
  if (serving === undefined) return answer;
  const published = publishedIn(context);
  const clusters = await Promise.all(found.spec.clusterDigests.map((digest) => fetchCluster(digest, published)));
  const commands = clusters.flatMap((cluster) => cluster.commands.map(({ name }) => name));
  const minting = { endpoint, owner, userKey, commands, instanceId, epoch };
  return { ...answer, credential: await enterAndMint(context, serving, minting) };
}

type Minting = {
  readonly endpoint: string;
  readonly owner: string;
  readonly userKey: string;
  readonly commands: readonly string[];
  readonly instanceId: string;
  readonly epoch: number;
};

/** As long as any that will be. */
const TRIAL = { instanceId: "x".repeat(32), epoch: Number.MAX_SAFE_INTEGER };

async function enterAndMint(context: SpaceContext, serving: Serving, minting: Minting): Promise<ServeCredential> {
  const expires = Math.floor(context.now() / 1000) + serving.lifeSeconds;
  const { endpoint, owner, instanceId, epoch, userKey } = minting;
  await serving.ledger.enter({ endpoint, owner, instanceId, epoch, userKey, expires });
  return mint(context, serving, minting, expires);
}

async function mint(
  context: SpaceContext,
  { accountKey, signer, lifeSeconds }: Serving,
  { endpoint, owner, instanceId, epoch, userKey, commands }: Minting,
  expires = Math.floor(context.now() / 1000) + lifeSeconds,
): Promise<ServeCredential> {
  // Of the key: a renewed credential is for the same inbox.
  const inboxNonce = encodeToken(createHash("sha256").update(userKey).digest(), 26);
  const who = servingPrincipal(owner, instanceId);
  const { jwt } = await mintUser({
    profile: "service",
    scope: {
      space: context.space,
      holder: { principal: who, uid: instanceId },
      inboxNonce,
      instanceId,
      epoch,
      endpoint,
      commands,
    },
    account: Account.Front,
    accountKey,
    signer,
    userKey,
    expires,
    limits: context.settings.limits.agent,
    name: dotForm(who),
  });
  return { jwt, inboxNonce, expires };
}

/** An open space proves nobody's identity: whoever asks for an instance has it, at an epoch of his own. */
async function beginOpen(context: SpaceContext, endpoint: string, known: string | undefined) {
  const instanceId = known ?? drawLifecycleUid(context.random);
  const key = recordKey("svc", { endpoint, instanceId }, "status");
  const place = { bucket: context.names.bucket.records, key };
  const begun = await changeJson(context.store, context.writer, place, (current) => {
    const before = RegistrationStatus.safeParse(current).data ?? { epoch: 0, observedSpecRevision: 0 };
    return { ...before, epoch: before.epoch + 1, state: "starting" };
  });
  return { instanceId, epoch: begun?.epoch ?? 1, opId: `open-${instanceId}` };
}

const publishedIn = (context: SpaceContext): FetchArtifact => {
  const { store, names, space } = context;
  return async (digest) => (await leaderLast(store, names.epc, planeSubject(space, { plane: "epc", digest })))?.data;
};

function refuse(code: ErrorCode, message: string, next: string): CotalError {
  return new CotalError(code, message, { outcome: Outcome.NotExecuted, next });
}
