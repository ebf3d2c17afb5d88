/**
 * Requests of every form at random, and the grammar of §13.2 once more as one regular expression, so that
 * the parser is held against something that was written apart from it.
 */
import fc from "fast-check";
import type { AuthzMode, CallAddress, Caller, TargetBlock } from "../../shared/protocol/endpoint/grammar.ts";
import { lifecycleUids, principals } from "./arbitraries.ts";

export const MODES: readonly AuthzMode[] = ["self", "owner", "any", "child", "ledger", "handle", "exact"];

const label = fc.stringMatching(/^[a-z0-9](?:[a-z0-9-]{0,10}[a-z0-9])?$/);
export const endpoints = fc.array(label, { minLength: 1, maxLength: 4 }).map((labels) => labels.join("."));
export const commands = fc.stringMatching(/^[a-z0-9-]{1,32}$/);
export const nonces = fc.stringMatching(/^[A-Za-z0-9_-]{22,64}$/);
export const ids = fc.stringMatching(/^[A-Za-z0-9_-]{1,64}$/);
export const epochs = fc.nat({ max: Number.MAX_SAFE_INTEGER });
const generations = fc.stringMatching(/^[0-9a-f]{32}$/);

export const callers: fc.Arbitrary<Caller> = fc
  .tuple(principals, lifecycleUids, fc.option(generations, { nil: undefined }))
  .map(([principal, uid, generation]) => ({ principal, uid, ...(generation === undefined ? {} : { generation }) }));

export const blocks: fc.Arbitrary<TargetBlock> = fc
  .tuple(fc.constantFrom(...MODES), principals, lifecycleUids)
  .map(([mode, { owner, actor }, uid]) => {
    if (mode === "self") return { mode };
    return mode === "handle" || mode === "exact" ? { mode, owner, actor, uid } : { mode, owner };
  });

export const addresses: fc.Arbitrary<CallAddress> = fc
  .tuple(
    fc.constantFrom("one" as const, "all" as const, "inst" as const),
    endpoints,
    commands,
    lifecycleUids,
    fc.option(blocks, { nil: undefined }),
  )
  .map(([route, endpoint, command, instanceId, target]) => ({
    ...(route === "inst" ? { route, instanceId } : { route }),
    endpoint,
    command,
    ...(target === undefined ? {} : { target }),
  }));

const OWNER = "(?:local|u_[a-z2-7]{26})";
const ACTOR = "[A-Za-z0-9_]{1,64}";
const UID = "[a-z0-9]{26,32}";
const LABEL = "[a-z0-9](?:[a-z0-9-]*[a-z0-9])?";
const HEAD = "^(?=.{1,1024}$)cotal\\.(?<space>[A-Za-z0-9_-]{1,32})\\.ep\\.";
const TO = `(?<endpoint>(?=[a-z0-9_-]{1,64}\\.)${LABEL}(?:_${LABEL})*)`;
const PLACE = `(?:(?<route>one|all)\\.${TO}|inst\\.${TO.replace("endpoint", "ofInstance")}\\.(?<instanceId>${UID}))`;
const BLOCK =
  "(?:(?:self|(?<ownerMode>owner|any|child|ledger)\\." +
  `(?<tOwner>${OWNER})|(?:handle|exact)\\.(?<targetTriple>${OWNER}\\.${ACTOR}\\.${UID}))\\.)?`;
const CALLER = `(?<owner>${OWNER})\\.(?<actor>${ACTOR})\\.(?<uid>${UID})`;
const NONCE = "(?<nonce>[A-Za-z0-9_-]{22,64})$";
const COMMAND = "(?<command>[a-z0-9-]{1,32})";

const LEGACY = new RegExp(`${HEAD}${PLACE}\\.${COMMAND}\\.${BLOCK}${CALLER}\\.${NONCE}`);
const VERSIONED = new RegExp(
  `${HEAD}v1\\.${PLACE}\\.${COMMAND}\\.${BLOCK}${CALLER}\\.(?<generation>[0-9a-f]{32})\\.${NONCE}`,
);

/** The sender and what is asked, or `undefined`: what the table of §13.2 says of a subject. */
export function requestByTable(subject: string): Record<string, string | undefined> | undefined {
  const groups = LEGACY.exec(subject)?.groups ?? VERSIONED.exec(subject)?.groups;
  if (groups === undefined) return undefined;
  const { owner, actor, uid, generation, nonce, command, endpoint, ofInstance, instanceId } = groups;
  return { owner, actor, uid, generation, nonce, command, endpoint: endpoint ?? ofInstance, instanceId };
}
