import { join } from "node:path";
import { defineConfig } from "vitest/config";

// Tests start several hundred processes of ours: each finds the sources as the first one compiled them.
process.env["NODE_COMPILE_CACHE"] ??= join(import.meta.dirname, "node_modules", ".cache", "cotal");

/** Tests start real brokers and processes, and wait for them: three at a time keep two cores busy. */
export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    exclude: ["test/bench/**", "test/container/**", "node_modules/**"],
    pool: "forks",
    maxWorkers: 3,
    testTimeout: 30_000,
    hookTimeout: 60_000,
    teardownTimeout: 20_000,
    // A second would be a bet on the machine.
    expect: { poll: { timeout: 20_000 } },
  },
});
