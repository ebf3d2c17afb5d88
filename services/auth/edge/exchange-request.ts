/**
 * What an exchange is asked (§10): who, proved how, and as what. From a body to one shape, or a refusal.
 *
 * Invariants
 * 1. A person's owner is derived from the proof and every UID comes from the ledger: a request that names
 *    either, or anything else that an exchange does not take, is refused before its proof is looked at.
 *    An agent's secret names nobody, so its request names the owner.
 * 2. A view's own part comes with that view and with no other.
 */
import { z } from "zod";
import { ErrorCode } from "../../../shared/protocol/base/errors.ts";
import { CHAT_ACTOR, DERIVED_OWNER_TOKEN, PRINCIPAL_TOKEN } from "../../../shared/protocol/base/grammar.ts";
import {
  ManagerCallerClaim,
  ProofKind,
  TransferWriterClaim,
  View,
  isView,
} from "../../../shared/protocol/endpoint/views.ts";
import { PresentedGrant } from "../../../shared/protocol/ledger/session-rows.ts";
import type { ViewRequest } from "../plane/authority-type.ts";
import { type Answer, refuse } from "./refusals.ts";

export type Presented =
  | { readonly kind: typeof ProofKind.Person | typeof ProofKind.DmReader; readonly idToken: string }
  | { readonly kind: typeof ProofKind.Agent; readonly owner: string; readonly secret: string };

/** What is asked for beside an identity; a `dm-reader`'s lifecycle is in its proof. */
export type AskedView =
  | Exclude<ViewRequest, { view: typeof View.DmReader }>
  | { readonly view: typeof View.DmReader }
  | { readonly view: typeof View.ManagerService };

export type Asked = {
  readonly actor: string;
  readonly presented: Presented;
  readonly view?: AskedView;
};

export type Misasked = { readonly answer: Answer; readonly result: string };

const common = {
  space: z.string(),
  actor: z.string().regex(PRINCIPAL_TOKEN),
  view: z.string().optional(),
  managerInstanceId: ManagerCallerClaim.shape.managerInstanceId.optional(),
};

const PersonBody = z.strictObject({
  ...common,
  idToken: z.string().min(1),
  sessionGrant: PresentedGrant.optional(),
  transferWriter: TransferWriterClaim.shape.transferWriter.optional(),
});

const AgentBody = z.strictObject({
  ...common,
  owner: z.string().regex(DERIVED_OWNER_TOKEN),
  secret: z.string().min(1).max(512),
});

type Body = z.infer<typeof PersonBody> | z.infer<typeof AgentBody>;

export function readExchange(body: unknown, space: string): Asked | Misasked {
  const isAgent = typeof body === "object" && body !== null && "secret" in body;
  const parsed = (isAgent ? AgentBody : PersonBody).safeParse(body);
  if (!parsed.success) {
    return parsed.error.issues.some(({ code }) => code === "unrecognized_keys") ? UNKNOWN_FIELD : MALFORMED;
  }
  const request: Body = parsed.data;
  if (request.space !== space) return OTHER_SPACE;
  if (CHAT_ACTOR.test(request.actor)) return CHAT;
  const view = readView(request);
  if (view !== undefined && "answer" in view) return view;
  const { actor } = request;
  const kind = view?.view === View.DmReader ? ProofKind.DmReader : ProofKind.Person;
  const presented: Presented =
    "secret" in request
      ? { kind: ProofKind.Agent, owner: request.owner, secret: request.secret }
      : { kind, idToken: request.idToken };
  return { actor, presented, ...(view === undefined ? {} : { view }) };
}

/** Which part of a request belongs to which view (§10: each without the other is a 400). */
const PARTS = {
  managerInstanceId: View.ManagerCaller,
  sessionGrant: View.SessionCaller,
  transferWriter: View.TransferWriter,
} as const;

function readView(request: Body): AskedView | Misasked | undefined {
  const { view } = request;
  const grant = "sessionGrant" in request ? request.sessionGrant : undefined;
  const transferWriter = "transferWriter" in request ? request.transferWriter : undefined;
  const given = { managerInstanceId: request.managerInstanceId, sessionGrant: grant, transferWriter };
  for (const [part, of] of Object.entries(PARTS)) {
    if (Reflect.get(given, part) !== undefined && view !== of) return astray(part, of);
  }
  if (view === undefined) return undefined;
  if (!isView(view)) return UNKNOWN_VIEW;
  switch (view) {
    case View.ManagerCaller:
      return { view, managerInstanceId: request.managerInstanceId };
    case View.SessionCaller:
      return grant === undefined ? lacking("sessionGrant", view) : { view, sessionGrant: grant };
    case View.TransferWriter:
      return transferWriter === undefined ? lacking("transferWriter", view) : { view, transferWriter };
    default:
      return { view };
  }
}

function wrong(reason: string, error: string, next: string): Misasked {
  return { answer: refuse({ code: ErrorCode.BadRequest, reason, error, next }), result: reason };
}

const astray = (part: string, view: View): Misasked =>
  wrong("view-part", `${part} comes with the view ${view} and with nothing else`, `ask for ${view}, or leave it out`);
const lacking = (part: string, view: View): Misasked =>
  wrong("view-part", `the view ${view} needs ${part}`, `send ${part} beside it`);

const UNKNOWN_FIELD = wrong(
  "unknown-field",
  "the request names something that an exchange does not take",
  "send space, idToken, actor and at most a view with its part: owner and lifecycle are the service's to say",
);
const MALFORMED = wrong(
  "malformed",
  "the request lacks a field, or one has the wrong form",
  'send {"space", "idToken", "actor"}; an actor is 1 to 64 letters, digits or underscores',
);
const OTHER_SPACE = wrong("other-space", "this exchange serves another space", "use the exchange of that space");
const CHAT = wrong("chat-actor", "a chat session's actor is not chosen", "open a chat session, or use another actor");
const UNKNOWN_VIEW = wrong(
  "view-unknown",
  "no exchange issues such a view",
  "docs/security/profiles.md lists the views",
);
