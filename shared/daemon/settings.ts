/**
 * How a setting's text becomes a value, and the settings that every daemon has.
 *
 * Each schema takes the text of a variable and, equally, the value itself (an option, a default), and
 * says what it expected without repeating what it got: a variable may hold a secret by mistake.
 */
import { z } from "zod";
import { type Setting, type SettingValues, setting } from "./config.ts";
import { LOG_LEVELS } from "./log.ts";

/** A schema from a reader: `undefined` means refused. */
function reads<T>(expected: string, read: (value: unknown) => T | undefined): z.ZodType<T> {
  return z.unknown().transform((value, context): T => {
    const out = read(value);
    if (out !== undefined) return out;
    context.addIssue({ code: "custom", message: `expected ${expected}` });
    return z.NEVER;
  });
}

/** A whole number within bounds, both included. */
export function wholeNumber(min: number, max: number): z.ZodType<number> {
  return reads(`a whole number from ${min} to ${max}`, (value) => {
    const n = typeof value === "string" && /^-?\d{1,15}$/.test(value) ? Number(value) : value;
    return typeof n === "number" && Number.isSafeInteger(n) && n >= min && n <= max ? n : undefined;
  });
}

/** A TCP port to listen on; 0 takes any free one. */
export const listenPort = wholeNumber(0, 65_535);

/** `true` or `false`; nothing else is guessed. */
export const onOff: z.ZodType<boolean> = reads("true or false", (value) => {
  if (typeof value === "boolean") return value;
  return value === "true" ? true : value === "false" ? false : undefined;
});

/** One line of text that is not blank. */
export const line: z.ZodType<string> = reads("one line of text", (value) =>
  typeof value === "string" && value.trim() !== "" && !/[\u0000-\u001f\u007f]/.test(value) ? value : undefined,
);

/** One of a closed list. */
export function oneOf<const T extends string>(values: readonly T[]): z.ZodType<T> {
  return reads(`one of ${values.join(", ")}`, (value) => values.find((known) => known === value));
}

/** Comma-separated lines; blanks around an entry don't count, empty entries are refused. */
export const list: z.ZodType<readonly string[]> = reads("entries separated by commas", (value) => {
  const entries: unknown = typeof value === "string" ? value.split(",").map((entry) => entry.trim()) : value;
  if (!Array.isArray(entries) || entries.length === 0) return undefined;
  const texts = entries.filter((entry): entry is string => typeof entry === "string" && entry !== "");
  return texts.length === entries.length ? texts : undefined;
});

/** A URL of one of these schemes (`nats`, `https`); kept as it was written. */
export function urlOf(...schemes: readonly [string, ...string[]]): z.ZodType<string> {
  return reads(`a URL that begins with ${schemes.map((scheme) => `${scheme}://`).join(" or ")}`, (value) => {
    if (typeof value !== "string" || !URL.canParse(value)) return undefined;
    return schemes.includes(new URL(value).protocol.slice(0, -1)) ? value : undefined;
  });
}

const BROKER_SCHEMES: ReadonlySet<string> = new Set(["nats:", "tls:"]);

/** Addresses of a broker: `host:port`, `nats://…` or `tls://…`, separated by commas. */
export const brokerAddresses: z.ZodType<readonly string[]> = reads(
  "addresses such as nats://host:4222, separated by commas",
  (value) => {
    const addresses = list.safeParse(value).data;
    return addresses?.every(isBrokerAddress) === true ? addresses : undefined;
  },
);

function isBrokerAddress(text: string): boolean {
  const whole = text.includes("://") ? text : `nats://${text}`;
  if (!URL.canParse(whole)) return false;
  const { protocol, hostname } = new URL(whole);
  return BROKER_SCHEMES.has(protocol) && hostname !== "";
}

/** What `runDaemon` needs of every configuration: spread it into the daemon's own settings. */
export const COMMON_SETTINGS = {
  logLevel: setting({
    env: "COTAL_LOG_LEVEL",
    schema: oneOf(LOG_LEVELS),
    default: "info",
    doc: "The least severe log line that is written.",
    example: "debug",
  }),
  healthHost: setting({
    env: "COTAL_HEALTH_HOST",
    schema: line,
    default: "127.0.0.1",
    doc: "The address that /livez, /readyz and /metrics listen on. A container sets 0.0.0.0.",
    example: "0.0.0.0",
  }),
  healthPort: setting({
    env: "COTAL_HEALTH_PORT",
    schema: listenPort,
    default: 0,
    doc: "The port of /livez, /readyz and /metrics; 0 takes a free one and logs it.",
    example: "9464",
  }),
  drainMs: setting({
    env: "COTAL_DRAIN_MS",
    schema: wholeNumber(100, 600_000),
    default: 10_000,
    doc: "Milliseconds from the first SIGTERM or SIGINT to the end of the process, whatever is still in flight.",
    example: "10000",
  }),
  parentIpc: setting({
    env: "COTAL_PARENT_IPC",
    schema: onOff,
    default: false,
    doc: "The process ends when the parent that started it with an IPC channel is gone. Launchers set it.",
    example: "true",
  }),
} satisfies Record<string, Setting<unknown>>;

/** Of a daemon that also serves a broker without accounts. */
export const BROKER_MODE = setting({
  env: "COTAL_BROKER",
  schema: oneOf(["accounts", "open"]),
  default: "accounts",
  doc: "`accounts`: the broker has this operator's accounts. `open`: it has none, and anybody may do anything.",
  example: "open",
});

/** And of one that serves spaces of a broker. */
export const SPACE_SETTINGS = {
  servers: setting({
    env: "COTAL_SERVERS",
    schema: brokerAddresses,
    default: ["nats://127.0.0.1:4222"],
    doc: "Addresses of the broker, separated by commas.",
    example: "nats://broker-1:4222,nats://broker-2:4222",
  }),
  spaces: setting({
    env: "COTAL_SPACES",
    schema: list,
    default: ["main"],
    doc: "The spaces that this process serves, separated by commas; `*` for each that has keys, also later ones.",
    example: "main,lab",
  }),
} satisfies Record<string, Setting<unknown>>;

export type CommonValues = SettingValues<typeof COMMON_SETTINGS>;
