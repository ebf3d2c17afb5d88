import { defineConfig } from "vitest/config";

/**
 * The container suite: one compose project at a time, which only a machine with Docker can bring up
 * (`npm run test:container`); with `--long` the overlays and the operator's commands too (test/container/long).
 */
export default defineConfig({
  test: {
    include: ["test/container/**/*.test.ts"],
    pool: "forks",
    maxWorkers: 1,
    bail: 0,
    teardownTimeout: 60_000,
  },
});
