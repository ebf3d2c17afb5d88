/**
 * Is there a Docker on this machine that can bring the compose project up?
 *
 * Where a tool beside the checkout prepares one for machines without a registry, it is run first: it does
 * only what is missing. Everywhere else the images come from the registry.
 */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";

export type Docker =
  | { readonly kind: "ready" }
  /** There is none: nothing is wrong with the project. */
  | { readonly kind: "absent"; readonly why: string }
  /** There should be one. */
  | { readonly kind: "broken"; readonly why: string };

const PREPARE_MS = 600_000;

export function findDocker(root: string): Docker {
  const tool = join(root, "..", "shared", "tools", "offline-images");
  if (existsSync(tool) && process.getuid?.() === 0) {
    const { status } = spawnSync(tool, [], { stdio: ["ignore", 2, "inherit"], timeout: PREPARE_MS });
    if (status !== 0) return { kind: "broken", why: `${tool} ended with ${status ?? "a signal"}` };
  }
  if (!answers("info")) return { kind: "absent", why: "no Docker daemon answers here" };
  return answers("compose", "version") ? { kind: "ready" } : { kind: "absent", why: "docker compose is not installed" };
}

const answers = (...args: readonly string[]): boolean =>
  spawnSync("docker", args, { stdio: "ignore", timeout: 30_000 }).status === 0;
