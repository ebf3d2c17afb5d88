/** Settings of the delivery service. */
import { defineConfig, setting } from "../../shared/daemon/config.ts";
import { BROKER_MODE, COMMON_SETTINGS, SPACE_SETTINGS, line, wholeNumber } from "../../shared/daemon/settings.ts";

export const deliveryConfig = defineConfig("COTAL_DELIVERY_", {
  ...COMMON_SETTINGS,
  ...SPACE_SETTINGS,
  keys: setting({
    env: "COTAL_DELIVERY_KEYS",
    schema: line,
    default: "/var/lib/cotal/spaces/{space}/delivery",
    doc: "The folder with the delivery service's own files; `{space}` stands for the space. Not read in an open space.",
    example: "/run/secrets/{space}",
  }),
  mode: BROKER_MODE,
  concurrency: setting({
    env: "COTAL_DELIVERY_CONCURRENCY",
    schema: wholeNumber(1, 10_000),
    default: 128,
    doc: "Requests of one space that run at once; over it the answer is `resource-exhausted`.",
    example: "128",
  }),
  perCaller: setting({
    env: "COTAL_DELIVERY_PER_CALLER",
    schema: wholeNumber(1, 10_000),
    default: 64,
    doc: "Requests of one caller that run at once; over it that caller alone is told `resource-exhausted`.",
    example: "64",
  }),
});
