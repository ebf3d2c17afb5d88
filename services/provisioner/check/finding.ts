/** What the parts of a check have in common. */
import type { Drift } from "../../../shared/broker/ensure.ts";
import type { Finding } from "../../../shared/protocol/endpoint/provisioner-shapes.ts";

/** What is found of one place is worth saying so often, and no more. */
export const MAX_FINDINGS = 200;

export const show = (value: unknown): string => (value === undefined ? "missing" : JSON.stringify(value)).slice(0, 200);

export const differs = (what: string, { field, expected, found }: Drift): string =>
  `${what}: ${field} is ${show(found)}, and ${show(expected)} is needed`;

export const error = (check: string, message: string, next: string): Finding => ({
  check,
  level: "error",
  message,
  next,
});

export const warning = (check: string, message: string, next: string): Finding => ({
  check,
  level: "warning",
  message,
  next,
});
