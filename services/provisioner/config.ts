/** Settings of the provisioner. */
import { defineConfig, setting } from "../../shared/daemon/config.ts";
import { Life } from "../../shared/grants/matrix.ts";
import { BROKER_MODE, COMMON_SETTINGS, SPACE_SETTINGS, line, wholeNumber } from "../../shared/daemon/settings.ts";

export const provisionerConfig = defineConfig("COTAL_PROVISIONER_", {
  ...COMMON_SETTINGS,
  ...SPACE_SETTINGS,
  keys: setting({
    env: "COTAL_PROVISIONER_KEYS",
    schema: line,
    default: "/var/lib/cotal/spaces/{space}/provisioner",
    doc: "The folder with the provisioner's own files; `{space}` stands for the space. Not read in an open space.",
    example: "/run/secrets/{space}",
  }),
  mode: BROKER_MODE,
  replicas: setting({
    env: "COTAL_REPLICAS",
    schema: wholeNumber(1, 3),
    default: 1,
    doc: "Copies of each stream of a new space: 1, or 3 in a cluster. An existing space keeps what it has.",
    example: "3",
  }),
  serveSeconds: setting({
    env: "COTAL_PROVISIONER_SERVE_SECONDS",
    schema: wholeNumber(5, Life.Service),
    default: Life.Service,
    doc: "Life of the credential that an instance of somebody's endpoint serves with. It is renewed while the instance lives; who takes the same instance over waits for its end.",
    example: "120",
  }),
  concurrency: setting({
    env: "COTAL_PROVISIONER_CONCURRENCY",
    schema: wholeNumber(1, 10_000),
    default: 128,
    doc: "Requests of one space that run at once; over it the answer is `resource-exhausted`.",
    example: "128",
  }),
  perCaller: setting({
    env: "COTAL_PROVISIONER_PER_CALLER",
    schema: wholeNumber(1, 10_000),
    default: 32,
    doc: "Requests of one caller that run at once; over it that caller alone is told `resource-exhausted`.",
    example: "32",
  }),
});
