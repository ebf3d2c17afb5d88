/**
 * Gates that an operation holds frozen, as `cotal doctor` shows them, and how each is completed (§13.1).
 *
 * One that is seen once may be an operation at work; what is told stood at both of two looks.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { z } from "zod";
import { AuthCommand } from "../shared/grants/commands.ts";
import { dotForm } from "../shared/protocol/base/principals.ts";
import { OperationListAnswer } from "../shared/protocol/endpoint/auth-shapes.ts";
import type { Finding } from "../shared/protocol/endpoint/provisioner-shapes.ts";
import type { Rail } from "./operator.ts";

type Held = z.infer<typeof OperationListAnswer>["operations"][number];
type Seen = { readonly held: readonly Held[]; readonly unreadable: readonly string[] };

const BETWEEN_MS = 1500;
const CHECK = "lifecycles";

export async function heldGateFindings(rail: Pick<Rail, "askAuth">): Promise<readonly Finding[]> {
  const first = await look(rail);
  if (first.held.length > 0) await sleep(BETWEEN_MS);
  const again = first.held.length > 0 ? await look(rail) : first;
  const before = new Set(first.held.map(({ opId }) => opId));
  return [
    ...again.held.filter(({ opId }) => before.has(opId)).map(finding),
    ...again.unreadable.map((key): Finding => ({
      check: CHECK,
      level: "error",
      message: `the ledger row ${key} does not parse, or is nobody's`,
      next: "nothing is decided on it; compare it with a backup, or restore the space",
    })),
  ];
}

async function look(rail: Pick<Rail, "askAuth">): Promise<Seen> {
  const held: Held[] = [];
  const unreadable: string[] = [];
  for (let cursor: number | undefined; ;) {
    const args = cursor === undefined ? {} : { cursor };
    const page: z.infer<typeof OperationListAnswer> = await rail.askAuth(
      AuthCommand.OperationList,
      args,
      OperationListAnswer,
    );
    held.push(...page.operations);
    unreadable.push(...page.unreadable);
    if (page.cursor === undefined) return { held, unreadable };
    ({ cursor } = page);
  }
}

function finding({ owner, actor, lifecycleUid, kind, opId }: Held): Finding {
  const who = dotForm({ owner, actor });
  return {
    check: CHECK,
    level: "warning",
    message: `nobody gets in as ${who} (${lifecycleUid}): its gate is held by the ${kind} ${opId}`,
    next: completion(kind, who, lifecycleUid),
  };
}

function completion(kind: string, who: string, uid: string): string {
  switch (kind) {
    case "retirement":
      return `complete it: cotal actor retire ${who} --uid ${uid}`;
    case "takeover":
      return `complete it: cotal actor rotate ${who}; or, where the process that began it is gone, end the identity: cotal actor retire ${who} --uid ${uid}`;
    case "activation":
      return `sign in as it, which completes it; or end it: cotal actor revoke ${who}`;
    default:
      return "let the program that began it finish; run it again";
  }
}
