/**
 * The token exchange over HTTP (§10): what is asked, what is answered, and the file that says where the
 * exchange of this machine is.
 *
 * Both sides read their half from here. The client's shapes are loose: a later service may say more.
 */
import { z } from "zod";
import { DERIVED_OWNER_TOKEN, LIFECYCLE_UID, PRINCIPAL_TOKEN } from "../base/grammar.ts";
import type { PresentedGrant } from "../ledger/session-rows.ts";
import type { PLAIN_VIEWS, View } from "./views.ts";

/** Names of our own in HTTP requests. */
export const ExchangeHeader = {
  /** The secret of one start of a loopback face. */
  Capability: "x-cotal-capability",
} as const;

export const ExchangePath = {
  ManagerInstances: "/manager-instances",
  Exchange: "/exchange",
  DevToken: "/dev/token",
  SignIn: "/sign-in",
  RetireLifecycle: "/retire-lifecycle",
} as const;

/** Three parts of base64url: a JWT or a JWS in its compact form. */
const COMPACT = /^[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+$/;
const MAX_TOKEN = 16 * 1024;

export const CompactToken = z.string().max(MAX_TOKEN).regex(COMPACT);

/** What proves who asks: a person's ID token, or a managed agent's secret. Both are secret. */
export type ExchangeProof =
  | { readonly idToken: string; readonly secret?: undefined }
  | { readonly owner: string; readonly secret: string; readonly idToken?: undefined };

/** The view that is asked for, with its own part and no other (§10). */
export type AskedView =
  | { readonly view?: undefined }
  | { readonly view: (typeof PLAIN_VIEWS)[number] }
  /** One instance, or the only one that is ready. */
  | { readonly view: typeof View.ManagerCaller; readonly managerInstanceId?: string }
  | { readonly view: typeof View.SessionCaller; readonly sessionGrant: PresentedGrant }
  | {
      readonly view: typeof View.TransferWriter;
      readonly transferWriter: { readonly instanceId: string; readonly hex: string };
    };

/** What a managed agent may ask for (§10). */
export type AgentView = Extract<AskedView, { view?: undefined | typeof View.ManagerCaller }>;

export type ExchangeRequest = { readonly space: string; readonly actor: string } & ExchangeProof & AskedView;

export const ExchangeAnswer = z.looseObject({
  /** Secret. */
  bearer: CompactToken,
  /** Unix seconds. */
  expiresAt: z.int().positive(),
  owner: z.string().regex(DERIVED_OWNER_TOKEN),
  actor: z.string().regex(PRINCIPAL_TOKEN),
  lifecycleUid: z.string().regex(LIFECYCLE_UID),
  sentinel: CompactToken,
  /** Where the broker is, if the service knows. */
  servers: z.array(z.string().max(512)).max(64).optional(),
});
export type ExchangeAnswer = z.infer<typeof ExchangeAnswer>;

export const RATE_LIMITED = "RATE_LIMITED";

/** The body of a 429 (§10). */
export const ExchangeLimited = z.looseObject({
  code: z.literal(RATE_LIMITED),
  retryAfterSeconds: z.int().min(1).max(86_400),
  limit: z.enum(["actor", "owner"]).optional(),
});

/** The body of every other refusal. */
export const ExchangeRefusal = z.looseObject({
  code: z.string().max(64),
  error: z.string(),
  next: z.string().optional(),
});

/** `exchange-<space>.json`: a loopback face, for whoever may read the run folder. */
export const FaceFile = z.looseObject({
  url: z.url({ protocol: /^https?$/ }),
  /** Secret. */
  capability: z.string().min(1).max(256),
});
export type FaceFile = z.infer<typeof FaceFile>;

/** The answer of the development issuer. */
export const DevToken = z.looseObject({ idToken: CompactToken });

/** Where people of a space sign in; all of it is missing where it has no identity provider. */
export const SignInAnswer = z.looseObject({
  issuer: z.string().max(512).optional(),
  clientId: z.string().min(1).max(256).optional(),
  scopes: z.array(z.string().min(1).max(128)).max(32).optional(),
});
export type SignInAnswer = z.infer<typeof SignInAnswer>;

/** Managers of one owner; `ready` says that an instance is registered, not that it answers. */
export const ManagerInstancesAnswer = z.looseObject({
  managers: z.array(
    z.looseObject({
      instanceId: z.string().regex(LIFECYCLE_UID),
      epoch: z.int().nonnegative(),
      ready: z.boolean(),
      /** Why it is not. */
      reason: z.string().optional(),
    }),
  ),
});
export type ManagerInstancesAnswer = z.infer<typeof ManagerInstancesAnswer>;
