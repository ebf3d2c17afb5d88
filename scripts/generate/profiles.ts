/** docs/security/profiles.md: the profile matrix of shared/grants/ as tables, for one example holder each. */
import { type BuiltProfile, PROFILES, isBuilt, type ProfileName, profileRows } from "../../shared/grants/matrix.ts";
import { pairedDeny } from "../../shared/grants/permissions.ts";
import type { Row } from "../../shared/grants/row.ts";
import { SYSTEM_EXPORT, storeExports } from "../../shared/grants/exports.ts";
import { ProofKind, VIEWS } from "../../shared/protocol/endpoint/views.ts";
import { EXAMPLE_HOLDERS } from "./example-holders.ts";
import type { Generated } from "./generated.ts";
import { code, duration, table } from "./markdown.ts";

export const PROFILES_FILE = "docs/security/profiles.md";

const INTRO = `<!-- Made by npm run generate from shared/grants/. Do not edit. -->

# Profiles: what each credential may do

Default deny: a subject that no row names is refused by the broker. The same rows make the permissions inside each
credential and the probes that attack a running space, so this page cannot say anything else than the broker does.

A space is three broker accounts. Clients connect to **front**, which has no storage. Streams and buckets lie in
**store**, where only daemons connect. **auth** is for the login callout. A row holds in one account only.

The rows are those of one example holder: space \`main\`, owner \`u_aaa…\`, and for the agent the read list
\`general, team.>\`, the post list \`general\`, the role \`reviewer\` and the capabilities \`com.example.echo@all\` and
\`serve\`, where \`com.example.echo\` has registered \`say\`, which has no target, and \`stop\`, which takes one in the
modes \`self\`, \`owner\` and \`any\`: a capability opens the first two of these and no other mode. A publish row
carries the holder's own tokens, so nobody can send as another. Every subscription that ends in \`*\` comes with a deny of the same subject with \`.>\`
behind it, because the broker would admit that longer one otherwise.
`;

export function generateProfiles(): Generated[] {
  const names = Object.keys(PROFILES) as ProfileName[];
  const built = names.filter(isBuilt);
  const unbuilt = names.filter((name) => !isBuilt(name));
  const text = [
    INTRO,
    overview(built),
    views(),
    ...built.map(section),
    "## Not built yet\n",
    "These names are reserved. Nothing can be minted from them until something needs it.\n",
    table(
      ["profile", "for"],
      unbuilt.map((name) => [code(name), PROFILES[name].summary]),
    ),
    "## What the store exports to its front\n",
    "Everything a client does to a stream crosses here, and nothing else does. Each is a private service, answered once.\n",
    table(
      ["subject", "why"],
      storeExports("main").map(({ subject, why }) => [code(subject), why]),
    ),
    "## What the system account exports to every store\n",
    `${code(SYSTEM_EXPORT.subject)}: how busy each server is, and how many it knows of (decision 46).`,
  ].join("\n");
  return [{ file: PROFILES_FILE, text: `${text.trimEnd()}\n` }];
}

function overview(built: readonly BuiltProfile[]): string {
  return table(
    ["profile", "accounts", "trusted", "life", "what it is"],
    built.map((name) => {
      const { accounts, trusted, lifeSeconds, summary } = PROFILES[name];
      return [code(name), accounts.join(", "), trusted ? "yes" : "no", duration(lifeSeconds), summary];
    }),
  );
}

const PROOF_WORDS: Readonly<Record<ProofKind, string>> = {
  [ProofKind.Person]: "a person's ID token",
  [ProofKind.Agent]: "an agent's secret",
  [ProofKind.DmReader]: "a token made for that inbox",
};

/** Who gets which view (§10): the table that the exchange and the callout go by. */
function views(): string {
  const rows = Object.entries(VIEWS).map(([name, { faces, proof, scope, unissued }]) => [
    code(name),
    unissued === true ? "nowhere yet" : faces.join(", "),
    proof.map((kind) => PROOF_WORDS[kind]).join(", or "),
    scope === undefined ? "none" : code(scope),
  ]);
  return [
    "## Views: who gets which, and where\n",
    "Where people sign in, the exchange gives a connection one of these profiles in place of `agent`, and the callout asks",
    "the ledger again at every connect. A scope is a word among the capabilities of the actor's row; none implies another.",
    "No other view is issued by any exchange. Such a connection ends with its bearer, within fifteen minutes, and a session's",
    "with its grant.\n",
    table(["view", "on the face", "proof", "scope"], rows),
  ].join("\n");
}

function section(name: BuiltProfile): string {
  const rows = profileRows(name, EXAMPLE_HOLDERS[name]);
  const { summary, trusted, ...profile } = PROFILES[name];
  const trust = trusted ? "Trusted: a daemon or a program of this project." : "Not trusted.";
  return [
    `## ${name}\n`,
    `${capital(summary)}. ${trust}${"answersWithinSeconds" in profile ? answers(profile.answersWithinSeconds) : ""}\n`,
    table(["account", "may", "subject", "why"], rows.map(cells)),
  ].join("\n");
}

const answers = (seconds: number): string =>
  ` It may answer each message that it receives, once, within ${seconds} seconds.`;

function cells(row: Row): string[] {
  if (row.op === "pub") return [row.account, "publish", code(row.subject), row.why];
  const group = row.queue === undefined ? "" : ` as queue ${code(row.queue)}`;
  const denied = pairedDeny(row.subject).map((subject) => `, never ${code(subject)}`);
  return [row.account, `subscribe${group}`, `${code(row.subject)}${denied.join("")}`, row.why];
}

function capital(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}
