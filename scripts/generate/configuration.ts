/**
 * docs/configuration.md: the settings of every daemon from its own table, the CLI's environment, and
 * where the state folder keeps what.
 */
import { loginPath } from "../../cli/login-file.ts";
import { DEFAULT_PORT, planePaths } from "../../launcher/state-folder.ts";
import { authConfig } from "../../services/auth/config.ts";
import { deliveryConfig } from "../../services/delivery/config.ts";
import { provisionerConfig } from "../../services/provisioner/config.ts";
import { type Config, describeConfig } from "../../shared/daemon/config.ts";
import { EXIT_CODES } from "../../shared/daemon/exit-codes.ts";
import { AuthFile } from "../../shared/trust/auth-folder.ts";
import { DeliveryFile } from "../../shared/trust/delivery-folder.ts";
import { ProvisionerFile, trustPaths } from "../../shared/trust/folder.ts";
import type { Generated } from "./generated.ts";
import { code, table } from "./markdown.ts";

export const CONFIGURATION_FILE = "docs/configuration.md";

/** To document another daemon, add a row. */
const DAEMONS: Readonly<Record<string, Pick<Config<unknown>, "settings" | "prefix">>> = {
  provisioner: provisionerConfig,
  auth: authConfig,
  delivery: deliveryConfig,
};

const INTRO = `<!-- Made by npm run generate from the settings tables in the sources. Do not edit. -->

# Configuration

Nothing here has to be set for \`npm start\`: the launcher sets what its daemons need. A flag beats the environment, the
environment beats the default, and an empty variable is an unset one. A daemon reports every problem of its
configuration at once and ends with code 2. A secret is named by the path of its file, never by a variable.
`;

const CLI_ENVIRONMENT: readonly (readonly [string, string, string])[] = [
  ["COTAL_STATE", "`$XDG_STATE_HOME/cotal`, else `~/.local/state/cotal`", "The state folder; `--state DIR` beats it."],
  ["COTAL_SERVER", "the plane of the state folder", "Address of the broker, or a join link; `--server` beats it."],
  [
    "COTAL_IDP_ISSUER",
    "what the space's exchange says",
    "The issuer that `cotal login` signs in at; `--issuer` beats it.",
  ],
  ["COTAL_IDP_CLIENT_ID", "what the space's exchange says", "The client that it comes as; `--client-id` beats it."],
  ["NO_COLOR", "unset", "Set to anything: no colours."],
  [
    "NODE_EXTRA_CA_CERTS",
    "unset",
    "A PEM file of authorities to trust besides the system's: for a broker or an exchange with a certificate of your own.",
  ],
  [
    "NATS_SERVER_BIN",
    "unset",
    "The path of a nats-server 2.12 or newer. Else the npm package's, then the one on `PATH`.",
  ],
];

export function generateConfiguration(): Generated[] {
  const text = [
    INTRO,
    "## The command line\n",
    table(
      ["variable", "default", "meaning"],
      CLI_ENVIRONMENT.map(([name, fallback, meaning]) => [code(name), fallback, meaning]),
    ),
    "A `COTAL_*` variable of your shell is for the command line alone: the launcher does not hand it to its daemons.\n",
    "## Ports\n",
    `The broker that \`cotal up\` starts listens on 127.0.0.1, port ${DEFAULT_PORT}, or on what \`--port\` names; a state folder`,
    "remembers its port. Each daemon answers `/livez`, `/readyz` and `/metrics` on a port of its own, which it logs.",
    "The auth service has a listener more for each space, on 127.0.0.1 and a free port, for programs of this machine; its",
    "address and capability are in the face file. With `COTAL_AUTH_PUBLIC` it has another one for everybody else, over TLS.",
    "Each of them answers `/jwks`, and for its own space alone `/livez` and `/readyz`.\n",
    ...Object.entries(DAEMONS).flatMap(([name, config]) => [`## The daemon ${code(name)}\n`, settingsTable(config)]),
    "## Exit codes of a daemon\n",
    table(
      ["code", "meaning", "what to do"],
      Object.entries(EXIT_CODES).map(([number, { meaning, next }]) => [number, meaning, next]),
    ),
    "## The state folder\n",
    "Every folder is 0700 and every file with a secret 0600. Each program reads its own part and no other's.\n",
    table(["path", "what", "read by"], stateRows()),
  ].join("\n");
  return [{ file: CONFIGURATION_FILE, text: `${text.trimEnd()}\n` }];
}

function settingsTable(config: Pick<Config<unknown>, "settings">): string {
  return table(
    ["variable", "default", "meaning", "example"],
    describeConfig(config).map(({ name, default: fallback, meaning, example }) => [
      code(name),
      /^(?:required|unset)$/.test(fallback) ? fallback : code(fallback),
      meaning,
      code(example),
    ]),
  );
}

function stateRows(): string[][] {
  const trust = trustPaths("<state>");
  const plane = planePaths("<state>");
  const space = "<space>";
  const file = (name: string) => `${trust.provisioner(space)}/${name}`;
  const ofDelivery = (name: string) => `${trust.delivery(space)}/${name}`;
  const ofAuth = (name: string) => `${trust.auth(space)}/${name}`;
  const rows: readonly (readonly [string, string, string])[] = [
    [trust.operatorKey, "the broker's operator key", "trust program"],
    [trust.operatorJwt, "the operator's public claims", "trust program, broker"],
    [trust.systemKey, "the system account's key", "trust program"],
    [trust.systemSigner, "the key that signs the system account's users", "trust program"],
    [trust.systemJwt, "the system account's public claims", "trust program, broker"],
    [trust.spaceTrust(space), "identity keys of the space's three accounts, and who was revoked", "trust program"],
    [file(ProvisionerFile.FrontSigner), "signs credentials of the front account", "provisioner"],
    [file(ProvisionerFile.StoreSigner), "signs credentials of the store account", "provisioner"],
    [file(ProvisionerFile.OwnerSecret), "the secret from which owner tokens are derived", "provisioner"],
    [file(ProvisionerFile.Uid), "the provisioner's own lifecycle UID", "provisioner"],
    [file(ProvisionerFile.LedgerUid), "the ledger's own lifecycle UID", "provisioner"],
    [file(ProvisionerFile.Space), "the accounts it signs for, and how people get in", "provisioner"],
    [
      file(ProvisionerFile.Issued),
      "what the trust program minted, to be entered into the ledger: the operator's, and the delivery service's",
      "provisioner",
    ],
    [ofAuth(AuthFile.AuthSigner), "signs the answers to the broker, and the service's own user there", "auth service"],
    [ofAuth(AuthFile.FrontSigner), "signs whom the callout lets into front", "auth service"],
    [ofAuth(AuthFile.StoreSigner), "signs the service's own users of the store", "auth service"],
    [ofAuth(AuthFile.CalloutUser), "the user that the broker asks", "auth service"],
    [ofAuth(AuthFile.Curve), "opens the broker's questions and seals the answers", "auth service"],
    [ofAuth(AuthFile.Bearer), "signs bearers", "auth service"],
    [ofAuth(AuthFile.OwnerSecret), "the secret from which owner tokens are derived", "auth service"],
    [ofAuth(AuthFile.Uid), "the auth service's own lifecycle UID", "auth service"],
    [ofAuth(AuthFile.LedgerUid), "the lifecycle UID of its ledger", "auth service"],
    [ofAuth(AuthFile.Space), "the accounts it signs for", "auth service"],
    [ofDelivery(DeliveryFile.FrontSigner), "signs the service's own users of front", "delivery service"],
    [ofDelivery(DeliveryFile.StoreSigner), "signs the service's own users of the store", "delivery service"],
    [ofDelivery(DeliveryFile.OwnerSecret), "the secret from which owner tokens are derived", "delivery service"],
    [ofDelivery(DeliveryFile.Uid), "the delivery service's own lifecycle UID", "delivery service"],
    [
      ofDelivery(DeliveryFile.Evictor),
      "its user of the system account, which sees and ends connections; renewed by the trust program",
      "delivery service",
    ],
    [
      ofDelivery(DeliveryFile.Observer),
      "its user of the system account, which sees what front has subscribed to; renewed by the trust program",
      "delivery service",
    ],
    [ofDelivery(DeliveryFile.Space), "the accounts of the space, and how people get in", "delivery service"],
    [trust.sentinel(space), "what everybody presents beside a bearer; no secret", "command line"],
    [trust.operatorCreds(space), "the operator's own credential", "command line"],
    [trust.agentCreds(space, "<actor>"), "credentials kept for `--as <actor>`", "command line"],
    [`${trust.agents(space)}/<actor>.uid`, "who `--as <actor>` is in an open space", "command line"],
    [loginPath({ state: "<state>", space }), "who has signed in, with the tokens of that sign-in", "command line"],
    [`${trust.agents(space)}/pending`, "keys of mints that are under way", "command line"],
    [trust.lock, "empty: locked while the trust is changed", "trust program"],
    [trust.initialiserLock, "empty: locked while the folders of containers are laid out", "initialiser of containers"],
    [trust.commandLock(space), "empty: locked while a command writes what it keeps", "command line"],
    ["<state>/broker", "configuration, accounts and store of the broker", "broker"],
    [plane.remembered, "the port and the mode that this state was made with", "launcher"],
    [plane.record, "the record of what runs now", "launcher, command line"],
    [plane.log("<name>"), "the log of one child, bounded", "you"],
  ];
  return rows.map(([path, what, reader]) => [code(path), what, reader]);
}
