/**
 * The broker's configuration file, for an authenticated broker and for an open one.
 *
 * Invariants: it listens on the loopback address unless told otherwise; it holds no private key,
 * only the operator's and system account's public JWTs.
 */
import { REQUIRED_CONTROL_LINE } from "../../shared/grants/gates.ts";

export type ServerConfig = {
  readonly host: string;
  readonly port: number;
  readonly monitorPort?: number;
  readonly storeDir: string;
  readonly resolverDir: string;
  readonly pidFile: string;
  readonly maxPayload: number;
  /** `undefined` for an open broker: no authentication at all. */
  readonly trust?: OperatorConfig;
};

export type OperatorConfig = {
  readonly operatorJwt: string;
  readonly systemAccount: string;
  readonly systemJwt: string;
};

/**
 * A call subscribes a subject of its own, with open tokens for who answers (§13.2). With its cache on, the broker
 * goes through all of it at each such subscription and again at its end: measured, 38 µs of its time for a call
 * without, 8 with this line.
 */
export const NO_SUBJECT_CACHE = "disable_sublist_cache: true";

/**
 * How long what the broker has acknowledged may be in the system's memory alone (decision 48): what a power cut takes.
 */
export const SYNC_INTERVAL = 'sync_interval: "1s"';

/** The file's text. */
export function serverConfigText(config: ServerConfig): string {
  const common = [
    `listen: ${quoted(`${config.host}:${config.port}`)}`,
    ...(config.monitorPort === undefined ? [] : [`http: ${quoted(`127.0.0.1:${config.monitorPort}`)}`]),
    `pid_file: ${quoted(config.pidFile)}`,
    `max_control_line: ${REQUIRED_CONTROL_LINE}`,
    `max_payload: ${config.maxPayload}`,
    'write_deadline: "10s"',
    NO_SUBJECT_CACHE,
    // Only where the launcher names a log file: without this its turned files are never removed.
    "logfile_max_num: 3",
    `jetstream { store_dir: ${quoted(config.storeDir)}, ${SYNC_INTERVAL} }`,
  ];
  if (config.trust === undefined) return [...common, ""].join("\n");
  return [
    ...common,
    "resolver {",
    "  type: full",
    `  dir: ${quoted(config.resolverDir)}`,
    "  allow_delete: false",
    '  interval: "2m"',
    '  timeout: "1s"',
    "}",
    operatorConfigText(config.trust),
  ].join("\n");
}

/** What only the trust of a broker says: the part that a configuration of one's own includes. */
export function operatorConfigText({ operatorJwt, systemAccount, systemJwt }: OperatorConfig): string {
  return [
    `operator: ${quoted(operatorJwt)}`,
    `system_account: ${quoted(systemAccount)}`,
    `resolver_preload { ${systemAccount}: ${quoted(systemJwt)} }`,
    "",
  ].join("\n");
}

const quoted = (text: string): string => JSON.stringify(text);
