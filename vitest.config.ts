import { defineConfig } from "vitest/config";

/** Tests start real brokers and processes; two at a time is what two cores carry. */
export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    exclude: ["test/bench/**", "test/container/**", "node_modules/**"],
    pool: "forks",
    maxWorkers: 2,
    testTimeout: 30_000,
    hookTimeout: 60_000,
    teardownTimeout: 20_000,
    // A second would be a bet on the machine.
    expect: { poll: { timeout: 20_000 } },
  },
});
