/** Shapes of what the endpoint `auth` serves to the operator: the actor ledger (§9, §10). */
import { z } from "zod";
import {
  DERIVED_OWNER_TOKEN,
  HOLDER_HASH,
  ID_TOKEN,
  LIFECYCLE_UID,
  PRINCIPAL_TOKEN,
  ROLE_TOKEN,
  USER_NKEY,
} from "../base/grammar.ts";
import { isEndpointName } from "./names.ts";
import { ActorRow, actorLists } from "../ledger/actor-rows.ts";
import { OperationKind } from "../ledger/rows.ts";
import { ChatSession } from "../ledger/chat-rows.ts";
import { AskedCapabilities } from "./capabilities.ts";

const token = z.string().regex(PRINCIPAL_TOKEN);
const { allowSubscribe, allowPublish, role } = actorLists;

/** Grants an actor, or sets what an active one is granted. */
export const ActorGrantArgs = z.strictObject({
  /** The owner token; or who it is, and the service works the token out. */
  owner: z.union([token, z.strictObject({ issuer: z.string().min(1), subject: z.string().min(1) })]),
  actor: token,
  /** Display name; the actor's own if left out. */
  name: z.string().optional(),
  kind: ActorRow.shape.kind.optional(),
  allowSubscribe: allowSubscribe.optional(),
  allowPublish: allowPublish.optional(),
  role,
  capabilities: AskedCapabilities.optional(),
  /** The actor for whom it acts, and who bounds it. */
  parent: z.strictObject({ owner: token, actor: token }).optional(),
  secretDigest: ActorRow.shape.secretDigest,
});
export type ActorGrantArgs = z.infer<typeof ActorGrantArgs>;

/** Takes away; what is left out stays as it is. */
export const ActorNarrowArgs = z.strictObject({
  owner: token,
  actor: token,
  allowSubscribe: allowSubscribe.optional(),
  allowPublish: allowPublish.optional(),
  /** `null` takes the role away. */
  role: z.string().regex(ROLE_TOKEN).nullable().optional(),
  capabilities: AskedCapabilities.optional(),
});
export type ActorNarrowArgs = z.infer<typeof ActorNarrowArgs>;

/** An actor as it is shown: never with the digest of its secret. */
export const ShownActor = z.looseObject(ActorRow.omit({ secretDigest: true }).shape);
export type ShownActor = z.infer<typeof ShownActor>;

/** Stored copies that a read list covers no longer: `pending` until the delivery service has taken them back. */
export const CopiesTaken = z.enum(["swept", "pending", "none"]);
export type CopiesTaken = z.infer<typeof CopiesTaken>;

/** How far a narrowing has come beyond the rows: `pending` where the delivery service did not prove it. */
export const Narrowing = z.looseObject({ copies: CopiesTaken, connections: z.enum(["ended", "pending"]) });
export type Narrowing = z.infer<typeof Narrowing>;

/** `narrowing` where something was taken away. */
export const ActorAnswer = z.looseObject({ actor: ShownActor, narrowing: Narrowing.optional() });

export const ActorRevokeArgs = z.strictObject({ owner: token, actor: token });
export const ActorRevokeAnswer = z.looseObject({
  uid: z.string().regex(LIFECYCLE_UID),
  /** The operation that ends its lifecycle; absent if it never began, or is over. */
  opId: z.string().optional(),
  copies: CopiesTaken,
  /** What is proved of its connections, once they were ended: there is none, there are some, or nobody can tell. */
  connections: z
    .looseObject({
      state: z.enum(["none", "some", "unknown"]),
      count: z.int().positive().optional(),
      why: z.string().optional(),
    })
    .optional(),
  /** Why its lifecycle is not over yet; absent where it is. */
  remains: z.string().optional(),
});

/** The terminal end of one lifecycle (§13.1): the alias alone ends nothing. */
export const RetireLifecycleArgs = z.strictObject({
  owner: token,
  actor: token,
  lifecycleUid: z.string().regex(LIFECYCLE_UID),
});
export const RetireLifecycleAnswer = z.looseObject({ opId: z.string() });

/** The end of one epoch of a lifecycle, and of everything that was let in by it. */
export const TakeoverLifecycleArgs = z.strictObject({
  ...RetireLifecycleArgs.shape,
  /** The epoch that is to end, for whoever has read it; the current one if left out. */
  epoch: z.int().positive().optional(),
});
export const TakeoverLifecycleAnswer = z.looseObject({ epoch: z.int().positive() });

export const OperationListArgs = z.strictObject({ cursor: z.number().int().nonnegative().optional() });
export const OperationListAnswer = z.looseObject({
  /** Gates that an operation holds frozen: nothing of that lifecycle is let in until it is through. */
  operations: z.array(
    z.looseObject({ owner: token, actor: token, lifecycleUid: z.string(), kind: z.string(), opId: z.string() }),
  ),
  /** Keys of rows that are no gate of anybody. */
  unreadable: z.array(z.string()),
  /** Absent on the last page. */
  cursor: z.number().optional(),
});

export const ActorListArgs = z.strictObject({
  owner: token.optional(),
  cursor: z.number().int().nonnegative().optional(),
});
export const ActorListAnswer = z.looseObject({
  actors: z.array(ShownActor),
  /** Keys of rows that do not parse. */
  unreadable: z.array(z.string()),
  /** Absent on the last page. */
  cursor: z.number().optional(),
});

/** A daemon of the space asks for rows of credentials that it has minted itself (decision H14). */
export const DaemonEnterArgs = z.strictObject({
  /** It starts: its lifecycle is activated if it is not, and takes the next process epoch. */
  begin: z.boolean(),
  credentials: z
    .array(z.strictObject({ credentialId: z.string().regex(USER_NKEY), expires: z.int().positive() }))
    .min(1)
    .max(8),
});
export type DaemonEnterArgs = z.infer<typeof DaemonEnterArgs>;
/** `epoch` where it has begun. */
export const DaemonEnterAnswer = z.looseObject({ epoch: z.int().positive().optional() });

/**
 * An instance without the plane has somebody before it whose lifecycle has not begun (decision 31). Who it is was
 * proved there; whether such a one may begin is judged again where the rows are written.
 */
export const EnrolArgs = z.discriminatedUnion("by", [
  z.strictObject({ by: z.literal("person"), owner: token, actor: token, name: z.string() }),
  z.strictObject({ by: z.literal("agent"), owner: token, actor: token }),
]);
export type EnrolArgs = z.infer<typeof EnrolArgs>;
export const EnrolAnswer = z.looseObject({});

/** The same for a chat session (§10); what is left out is the parent's. */
export const ChatOpenArgs = z.strictObject({
  owner: z.string().regex(DERIVED_OWNER_TOKEN),
  holderHash: z.string().regex(HOLDER_HASH),
  name: z.string().optional(),
  allowSubscribe: allowSubscribe.optional(),
  allowPublish: allowPublish.optional(),
  lifeSeconds: z.int().positive().optional(),
});
export type ChatOpenArgs = z.infer<typeof ChatOpenArgs>;
export const ChatOpenAnswer = z.looseObject({ session: ChatSession });

/** What the provisioner asks of the ledger when an instance of somebody's endpoint registers (decision H14). */
const serving = { endpoint: z.string().refine(isEndpointName), instanceId: z.string().regex(LIFECYCLE_UID) } as const;
const epoch = z.int().positive();
export const ServingArgs = z.union([
  z.strictObject({
    step: z.literal("assign"),
    endpoint: serving.endpoint,
    owner: token,
    /** On whose word. */
    by: z.strictObject({ owner: token, actor: token }),
  }),
  z.strictObject({
    step: z.literal("begin"),
    endpoint: serving.endpoint,
    owner: token,
    userKey: z.string().regex(USER_NKEY),
    instanceId: serving.instanceId.optional(),
  }),
  z.strictObject({
    step: z.literal("open"),
    ...serving,
    opId: z.string().regex(ID_TOKEN),
    epoch,
    registrationRevision: z.int().positive(),
  }),
  z.strictObject({
    step: z.literal("enter"),
    ...serving,
    owner: token,
    epoch,
    userKey: z.string().regex(USER_NKEY),
    /** Unix seconds. */
    expires: z.int().positive(),
  }),
  z.strictObject({ step: z.literal("held"), cursor: z.int().nonnegative().optional() }),
]);
export type ServingArgs = z.infer<typeof ServingArgs>;
/** Gates of instances that an operation holds frozen: nothing is let in as one until it is through. */
export const HeldEndpointGates = z.looseObject({
  gates: z.array(
    z.looseObject({
      ...serving,
      owner: token,
      kind: OperationKind,
      opId: z.string(),
      /** Epoch milliseconds by the broker's clock. */
      sinceMs: z.int().nonnegative(),
    }),
  ),
  /** Keys of rows that are no gate of an instance. */
  unreadable: z.array(z.string()),
  /** Absent on the last page. */
  cursor: z.int().nonnegative().optional(),
});

/** `begun` where an instance has begun, `held` where gates were asked for. */
export const ServingAnswer = z.looseObject({
  held: HeldEndpointGates.optional(),
  begun: z.looseObject({ instanceId: serving.instanceId, opId: z.string(), epoch }).optional(),
});
export type ServingAnswer = z.infer<typeof ServingAnswer>;
