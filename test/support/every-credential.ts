/**
 * Every built profile as somebody really holds it, with the rows that its credential was minted from: what the safety
 * tests multiply. Daemons and views are of the space `lab`, clients that the provisioner mints of `main`.
 */
import { type BuiltProfile, PROFILES, type ScopeOf, profileRows } from "../../shared/grants/matrix.ts";
import type { Account, Row } from "../../shared/grants/row.ts";
import type { Credential } from "../../shared/trust/creds.ts";
import type { Person } from "../broker/expected/kit.ts";
import { ECHO } from "./heads.ts";
import { daemonCredential, freshHolder, personOf } from "./holders.ts";
import type { TestSpace } from "./space.ts";

export const SPACE = "main";
export const LAB = "lab";
export const EPOCH = 7;
/** What the views of this file name. */
export const MANAGER = "m".repeat(26);
export const SESSION = "s".repeat(26);
export const HEX = "ab".repeat(32);
export const ACCOUNT = `A${"F".repeat(55)}`;
const AGENT = {
  subscribe: ["general", "team.>", "ops.*", "a.*.b"],
  publish: ["general", "team.>", "ops.*"],
  role: "reviewer",
};
/** What it may ask of an endpoint, and what that comes to by the head that is registered. */
const CAPABILITIES = [`${ECHO}@all`, "serve"];
const OPENED = {
  commands: [
    { endpoint: ECHO, command: "say", scatter: true },
    { endpoint: ECHO, command: "stop", modes: ["self", "owner", "any"], scatter: true },
  ],
  serves: true,
} as const;

/** One credential with the rows that it was minted from. */
export type Held = {
  readonly credential: Credential;
  readonly account: Account;
  readonly rows: readonly Row[];
  readonly me: Person;
  readonly space: string;
};

const of = (credential: Credential, account: Account, at: string, rows: readonly Row[]): Held => ({
  credential,
  account,
  rows: rows.filter((row) => row.account === account),
  me: personOf(credential),
  space: at,
});

let drawn = 0;
/** A principal is active once only: each credential of a test process gets an actor of its own. */
const actor = (lead: string): string => `${lead}${(drawn += 1)}`;

/** The credentials of one profile, one for each account; `LAB` must be a space too, and the head of `ECHO` there. */
export async function heldBy(space: TestSpace, profile: BuiltProfile): Promise<Held[]> {
  const OWNER = `u_${"d".repeat(26)}`;
  const lab = { ...freshHolder(OWNER, "daemon"), space: LAB };
  const daemon = async <Name extends BuiltProfile>(name: Name, scope: ScopeOf<Name>): Promise<Held[]> =>
    Promise.all(
      PROFILES[name].accounts.map(async (account) =>
        of(await daemonCredential(space, name, account, scope), account, scope.space, profileRows(name, scope)),
      ),
    );
  switch (profile) {
    case "agent": {
      const credential = await space.mint({ actor: actor("alice"), ...AGENT, capabilities: CAPABILITIES });
      const { subscribe: allowSubscribe, publish: allowPublish, role } = AGENT;
      const scope = { ...scopeOf(credential), allowSubscribe, allowPublish, role, ...OPENED };
      return [of(credential, "front", SPACE, profileRows("agent", scope))];
    }
    case "service": {
      const served = { endpoint: ECHO, commands: ["say", "stop"], epoch: EPOCH };
      return daemon(profile, { ...lab, ...served, instanceId: lab.holder.uid });
    }
    case "operator": {
      const credential = space.operator(SPACE);
      return [of(credential, "front", SPACE, profileRows("operator", scopeOf(credential)))];
    }
    // Views are minted by the callout alone; here by the space's own key, with the rows that it would use.
    case "channel-purger":
    case "purger":
    case "deployer":
    case "dm-reader":
      return daemon(profile, lab);
    case "manager-caller":
      return daemon(profile, { ...lab, managerInstanceId: MANAGER, capabilities: ["spawn"] });
    case "session-caller":
      return daemon(profile, { ...lab, session: { endpoint: "manager", sessionId: SESSION, epoch: EPOCH } });
    case "transfer-writer":
      return daemon(profile, { ...lab, transferWriter: { instanceId: MANAGER, hex: HEX } });
    case "observer":
    case "admin":
    case "channel-writer":
    case "probe": {
      const credential = await space.mint({ actor: actor(profile.replace("-", "_")), profile });
      return [of(credential, "front", SPACE, profileRows(profile, scopeOf(credential)))];
    }
    case "provisioner":
      return daemon("provisioner", { ...lab, instanceId: lab.holder.uid, epoch: EPOCH });
    case "ledger":
      return daemon("ledger", lab);
    case "auth-callout":
    case "auth-edge":
    case "auth-ledger":
    case "history-purger":
    case "registrar":
    case "daemon-entrant":
    case "store-upgrader":
    case "membership-rw":
    case "backup-reader":
    case "space-restorer":
      return daemon(profile, lab);
    case "ledger-scanner":
      return daemon(profile, { ...lab, scans: "records" });
    case "provisioner-desk":
    case "auth-server":
    case "delivery":
    case "delivery-reader":
      return daemon(profile, { ...lab, instanceId: lab.holder.uid, epoch: EPOCH });
    case "connection-evictor":
      return daemon(profile, { ...lab, spaceAccounts: [ACCOUNT] });
    case "membership-observer":
      return daemon(profile, { ...lab, frontAccount: ACCOUNT });
    case "deprovisioner": {
      const {
        owner,
        actor: name,
        uid,
      } = personOf(await space.mint({ actor: actor("target"), space: LAB, subscribe: ["general"] }));
      return daemon("deprovisioner", { ...lab, target: { principal: { owner, actor: name }, uid } });
    }
    case "system-administrator":
      return daemon("system-administrator", { ...lab, space: "broker" });
  }
}

function scopeOf({ view }: Credential) {
  return { space: view.space, holder: { principal: view.principal, uid: view.uid }, inboxNonce: view.inboxNonce };
}

/** A subject that a row allows, with a token for each wildcard. */
export function filled(subject: string): string {
  const tokens = subject.split(".");
  return tokens.map((token) => (token === "*" ? "n".repeat(26) : token === ">" ? "1.1.1.0.0" : token)).join(".");
}

export const BUILT = (Object.keys(PROFILES) as (keyof typeof PROFILES)[]).filter(
  (name): name is BuiltProfile => PROFILES[name].state === "built",
);
