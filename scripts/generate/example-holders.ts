/**
 * One example holder per built profile: what the documentation shows, and what the matrix tests walk.
 *
 * The type makes a profile that gets built without an example a compile error.
 */
import type { BuiltProfile, ScopeOf } from "../../shared/grants/matrix.ts";
import type { HolderScope } from "../../shared/grants/client-profiles.ts";

const SPACE = "main";
const OWNER = "u_aaaaaaaaaaaaaaaaaaaaaaaaaa";
const NONCE = "nnnnnnnnnnnnnnnnnnnnnnnnnn";

function holder(actor: string, uid: string): HolderScope {
  return { space: SPACE, holder: { principal: { owner: OWNER, actor }, uid }, inboxNonce: NONCE };
}

const alice = holder("alice", "alicealicealicealicealicea");

export const EXAMPLE_HOLDERS: { readonly [Name in BuiltProfile]: ScopeOf<Name> } = {
  agent: {
    ...alice,
    allowSubscribe: ["general", "team.>"],
    allowPublish: ["general"],
    role: "reviewer",
    commands: [
      { endpoint: "com.example.echo", command: "say", scatter: true },
      { endpoint: "com.example.echo", command: "stop", modes: ["self", "owner", "any"], scatter: true },
    ],
    serves: true,
  },
  observer: holder("watcher", "watcherwatcherwatcherwatch"),
  admin: holder("admin", "adminadminadminadminadmina"),
  operator: holder("operator", "operatoroperatoroperatorop"),
  "channel-writer": holder("writer", "writerwriterwriterwriterwr"),
  "channel-purger": holder("purger", "purgerpurgerpurgerpurgerpu"),
  purger: holder("purger", "purgerpurgerpurgerpurgerpu"),
  deployer: holder("deployer", "deployerdeployerdeployerde"),
  "manager-caller": {
    ...holder("caller", "callercallercallercallerca"),
    managerInstanceId: "managermanagermanagermanag",
    capabilities: ["spawn"],
  },
  "session-caller": {
    ...holder("caller", "callercallercallercallerca"),
    session: { endpoint: "manager", sessionId: "sessionsessionsessionses", epoch: 3 },
  },
  "transfer-writer": {
    ...holder("sender", "sendersendersendersenderse"),
    transferWriter: { instanceId: "managermanagermanagermanag", hex: "ab".repeat(32) },
  },
  "dm-reader": alice,
  service: {
    ...holder("svc_instanceinstanceinstancein", "instanceinstanceinstancein"),
    endpoint: "com.example.echo",
    instanceId: "instanceinstanceinstancein",
    epoch: 1,
    commands: ["say", "stop"],
  },
  probe: holder("probe", "probeprobeprobeprobeprobep"),
  provisioner: {
    ...holder("provisioner", "provisionerprovisionerprov"),
    instanceId: "instanceinstanceinstancein",
    epoch: 1,
  },
  "provisioner-desk": {
    ...holder("provisioner", "provisionerprovisionerprov"),
    instanceId: "instanceinstanceinstancein",
    epoch: 1,
  },
  ledger: holder("ledger", "ledgerledgerledgerledgerle"),
  registrar: holder("provisioner", "provisionerprovisionerprov"),
  "auth-callout": holder("auth", "authauthauthauthauthauthau"),
  "auth-ledger": holder("auth_ledger", "authledgerauthledgerauthle"),
  "ledger-scanner": { ...holder("auth_ledger", "authledgerauthledgerauthle"), scans: "ledger" },
  "auth-edge": holder("auth", "authauthauthauthauthauthau"),
  "auth-server": {
    ...holder("auth", "authauthauthauthauthauthau"),
    instanceId: "authauthauthauthauthauthau",
    epoch: 1,
  },
  delivery: {
    ...holder("delivery", "deliverydeliverydeliveryde"),
    instanceId: "deliverydeliverydeliveryde",
    epoch: 1,
  },
  "delivery-reader": {
    ...holder("delivery", "deliverydeliverydeliveryde"),
    instanceId: "deliverydeliverydeliveryde",
    epoch: 1,
  },
  "daemon-entrant": holder("delivery", "deliverydeliverydeliveryde"),
  "connection-evictor": {
    ...holder("delivery", "deliverydeliverydeliveryde"),
    spaceAccounts: ["FRONT", "STORE", "AUTH"].map((name) => `A${name.padEnd(55, name)}`),
  },
  "membership-rw": holder("delivery", "deliverydeliverydeliveryde"),
  "membership-observer": {
    ...holder("delivery", "deliverydeliverydeliveryde"),
    frontAccount: `A${"FRONT".padEnd(55, "FRONT")}`,
  },
  deprovisioner: { ...holder("deprovisioner", "deprovisionerdeprovisioner"), target: alice.holder },
  "history-purger": holder("provisioner", "provisionerprovisionerprov"),
  "store-upgrader": holder("ledger", "ledgerledgerledgerledgerle"),
  "backup-reader": holder("backup", "backupbackupbackupbackupba"),
  "space-restorer": holder("restore", "restorerestorerestorerest7"),
  "system-administrator": holder("trust", "trusttrusttrusttrusttrustt"),
};
