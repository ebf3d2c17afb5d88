/** `cotal doctor`: looks at every part of the space and says what is wrong and what to do. */
import type { Command } from "commander";
import { type Diagnosis, asFinding, diagnose } from "../diagnosis.ts";
import { Exit, UsageError } from "../exit.ts";
import { printFinding } from "../findings.ts";
import { namedCredentials } from "../identity.ts";
import { type Invocation, handle } from "../program.ts";

export function registerDoctor(program: Command): void {
  handle(program.command("doctor").description("look for what is wrong, and say what to do about it"), doctor);
}

async function doctor(invocation: Invocation<object>): Promise<Exit> {
  const { out } = invocation;
  const { findings, checked } = await look(invocation);
  for (const finding of findings) printFinding(out, finding);
  const summary =
    findings.length === 0
      ? `nothing found; looked at ${checked.join(", ")}`
      : `${findings.length} found; looked at ${checked.join(", ")}`;
  out.item({ kind: "doctor", findings: findings.length, checked }, summary);
  return findings.length === 0 ? Exit.Done : Exit.Findings;
}

/** A state folder that can't be read is a finding like any other, and the first. */
async function look({ options, out, target }: Invocation<object>): Promise<Diagnosis> {
  try {
    const at = target();
    const named = await namedCredentials(at, options, out);
    return await diagnose(at, !at.isNamed, named);
  } catch (thrown) {
    if (thrown instanceof UsageError) throw thrown;
    return { findings: [asFinding("state folder", thrown)], checked: ["state folder"] };
  }
}
