/**
 * The largest credentials that are minted (supplement E): an agent with three endpoints of twelve commands
 * each, every one of them in the modes `self` and `owner`, beside its lists and a role; and an instance that
 * serves twelve commands.
 *
 * Invariants
 * 1. Every byte is fixed, that of the signature too: keys come from constants, and Ed25519 draws nothing.
 * 2. They are as large as the size gate lets them be with names that people give. With names of 64
 *    characters everywhere the same rows would take twice as much, and the gate refuses that.
 */
import type { GrantedCommand } from "../../shared/grants/client-profiles.ts";
import type { ScopeOf } from "../../shared/grants/matrix.ts";
import { Account } from "../../shared/grants/row.ts";
import { type MintRequest, type Minted, mintUser } from "../../shared/trust/jwt.ts";
import type { SigningKey } from "../../shared/trust/keys.ts";
import { fixedKey } from "./fixed-keys.ts";

/** Of one account, which signs. */
export type Issuer = { readonly accountKey: string; readonly signer: SigningKey };

const OWNER = `u_${"w".repeat(26)}`;
const NONCE = "n".repeat(26);
const ENDPOINTS = ["a.dev", "a.lab", "a.ops"];
const COMMANDS = Array.from({ length: 12 }, (_, at) => `${String(at).padStart(2, "0")}`);

export const worstUser = fixedKey("user", "worst case");

/** The commands as three governance heads open them. */
export const WORST_COMMANDS: readonly GrantedCommand[] = ENDPOINTS.flatMap((endpoint) =>
  COMMANDS.map((command) => ({ endpoint, command, modes: ["self", "owner"] as const, scatter: true })),
);

export const worstAgent: ScopeOf<"agent"> = {
  space: "main",
  holder: { principal: { owner: OWNER, actor: "aide" }, uid: "w".repeat(26) },
  inboxNonce: NONCE,
  allowSubscribe: ["general", "team.>"],
  allowPublish: ["general", "team.>"],
  role: "builder",
  commands: WORST_COMMANDS,
  serves: true,
};

const INSTANCE = "i".repeat(26);

export const worstService: ScopeOf<"service"> = {
  space: "main",
  holder: { principal: { owner: OWNER, actor: `svc_${INSTANCE}` }, uid: INSTANCE },
  inboxNonce: NONCE,
  endpoint: "com.acme.department-of-production.region-two.deployments",
  instanceId: INSTANCE,
  epoch: 4_294_967_296,
  commands: Array.from({ length: 12 }, (_, at) => `roll-back-to-known-release-${String(at).padStart(2, "0")}`),
};

const fixedIssuer: Issuer = {
  accountKey: fixedKey("account", "worst case front").publicKey,
  signer: fixedKey("account", "worst case signer"),
};

const common = {
  account: Account.Front,
  userKey: worstUser.publicKey,
  issued: 1_800_000_000,
  expires: 1_800_000_600,
  limits: { subs: 1000, payload: 262_144 },
} as const;

const AGENT = {
  ...common,
  profile: "agent",
  scope: worstAgent,
  name: "Agent",
  capabilities: ENDPOINTS.map((endpoint) => `${endpoint}@all`).toSorted(),
} as const;

const SERVICE = { ...common, profile: "service", scope: worstService } as const;

type Over = Partial<Pick<MintRequest<"agent">, "issued" | "expires">> & { readonly by?: Issuer };

export function mintWorstAgent({ by = fixedIssuer, ...over }: Over = {}): Promise<Minted> {
  return mintUser({ ...AGENT, ...over, ...by });
}

export function mintWorstService({ by = fixedIssuer, ...over }: Over = {}): Promise<Minted> {
  return mintUser({ ...SERVICE, ...over, ...by });
}
