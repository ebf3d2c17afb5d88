/** A finding of the doctor, as it is printed. */
import type { Finding } from "../shared/protocol/endpoint/provisioner-shapes.ts";
import type { Output } from "./output.ts";
import { oneLine } from "./text.ts";

export function printFinding(out: Output, finding: Finding): void {
  const { check, level, message, next } = finding;
  const mark = out.style(level === "error" ? "red" : "yellow", level);
  out.item(
    { kind: "finding", check, level, message, next },
    `${mark} ${oneLine(check)}: ${oneLine(message)}`,
    `  next: ${oneLine(next)}`,
  );
}
