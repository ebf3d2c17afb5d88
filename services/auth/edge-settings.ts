/**
 * What the edge of a space is told by the settings, and what its events come to: metrics and log lines.
 *
 * Invariants: no event carries a secret (`edge/`); lines that others cause are bounded.
 */
import type { Context } from "../../shared/daemon/lifecycle.ts";
import { RequestFault } from "../../shared/trust/callout.ts";
import { DEV_ISSUER_NOTICE } from "./dev-issuer.ts";
import type { Rate } from "../../shared/serve/buckets.ts";
import { DEFAULT_LIMIT_SIZES, type LimitSizes } from "./edge/connect-limits.ts";
import type { TlsEvent } from "./edge/face-tls.ts";
import { idpSettings } from "./idp-settings.ts";
import { operatorFaces } from "./operator-face.ts";
import type { EdgeSettings } from "./open-edge.ts";
import { publicFaces } from "./public-faces.ts";
import type { Values } from "./spaces.ts";
import type { Sparing } from "../../shared/daemon/sparing.ts";

/** What clients cause and what we do have lines of their own: a flood of refusals hides no fault. */
export type EdgeSparing = { readonly refusals: Sparing; readonly faults: Sparing };

/** By space. Throws `bad-request` for settings that don't fit each other. */
export function edgeSettings(
  context: Context<Values>,
  sparing: EdgeSparing,
): (space: string) => Omit<EdgeSettings, "onChat"> {
  const { values, metrics, log } = context;
  const connects = metrics.counter({
    name: `${metrics.prefix}connects_total`,
    help: "Connects that the broker asked about, by result.",
    labels: ["space", "result"],
  });
  const connectSeconds = metrics.histogram({
    name: `${metrics.prefix}connect_duration_seconds`,
    help: "From the broker's question to our answer.",
    labels: ["space"],
  });
  const exchanges = metrics.counter({
    name: `${metrics.prefix}exchanges_total`,
    help: "Exchanges, by face and result.",
    labels: ["space", "face", "result"],
  });
  const exchangeSeconds = metrics.histogram({
    name: `${metrics.prefix}exchange_duration_seconds`,
    help: "From an exchange's arrival to its answer.",
    labels: ["space"],
  });
  const idp = idpSettings(values);
  const saying = tlsSayings(context);
  const publicFace = publicFaces(values);
  const operatorFace = operatorFaces(values);
  const sparingOf = (cause: unknown): Sparing => (cause === undefined ? sparing.refusals : sparing.faults);
  return (space) => ({
    idp,
    devIssuer: values.devIssuer,
    faceFile: values.faceFile,
    operatorFace: operatorFace(space),
    publicFace: publicFace(space),
    clientServers: values.clientServers,
    connects: values.connects,
    limits: limitSizes(values),
    exchanges: values.exchanges,
    chatProofSeconds: values.chatProofSeconds,
    probes: atOnce(values.probes),
    selection: { refusals: values.selectionRefusals, seconds: values.selectionSeconds },
    onCallout: (event) => {
      if (event.kind === "unreadable") {
        const { fault } = event;
        connects.inc({ space, result: fault });
        sparing.refusals((more) =>
          log.warn("a question of the broker can't be read", { space, fault, next: unreadable(fault), ...more }),
        );
        return;
      }
      if (event.kind === "unanswered") {
        connects.inc({ space, result: event.kind });
        sparing.faults((more) => log.warn("a connect got no answer", { space, err: event.cause, ...more }));
        return;
      }
      connects.inc({ space, result: event.kind === "allowed" ? "ok" : event.reason });
      connectSeconds.observe({ space }, event.milliseconds / 1000);
      if (event.kind === "allowed") log.debug("connected", { space, principal: event.principal });
      else {
        const { principal, line, cause } = event;
        sparingOf(cause)((more) => log.info("denied", { space, principal, reason: line, err: cause, ...more }));
      }
    },
    onExchange: ({ face, result, principal, milliseconds, cause }) => {
      exchanges.inc({ space, face, result });
      exchangeSeconds.observe({ space }, milliseconds / 1000);
      const fields = { space, face, result, principal };
      if (cause === undefined) log.debug("exchanged", fields);
      else sparing.faults((more) => log.warn("an exchange failed", { ...fields, err: cause, ...more }));
    },
    onFace: ({ route, status, reason, cause }) => {
      if (status < 500) return;
      const fields = { space, route, status, reason, err: cause };
      sparingOf(cause)((more) => log.warn("the exchange failed", { ...fields, ...more }));
    },
    onTls: saying(space),
    onDevIssuer: () => log.warn(DEV_ISSUER_NOTICE, { space }),
  });
}

function unreadable(fault: RequestFault): string {
  return fault === RequestFault.Expired
    ? "the clock of this machine is ahead of the broker's, or this process was frozen: let both machines keep time by NTP"
    : "if nobody gets in, the broker's auth account and the keys of this service do not belong together: cotal up, " +
        "or cotal space add, tells the broker again";
}

/** As many at once as in a minute. */
const atOnce = (perMinute: number): Rate => ({ burst: perMinute, perMinute });

function limitSizes({ connectsPerActor, connectsPerOwner, connectsPerHost }: Values): LimitSizes {
  return {
    ...DEFAULT_LIMIT_SIZES,
    actor: atOnce(connectsPerActor),
    owner: atOnce(connectsPerOwner),
    host: atOnce(connectsPerHost),
  };
}

/** A certificate is renewed weeks before its end; who is later than this has missed it. */
const LATE_MS = 7 * 86_400_000;
const RENEW = "put a renewed certificate and its key in their places; they are read again by themselves";

function tlsSayings({ log, metrics }: Context<Values>): (space: string) => (event: TlsEvent) => void {
  const end = metrics.gauge({
    name: `${metrics.prefix}certificate_end_seconds`,
    help: "When the certificate of the public exchange ends, in Unix time.",
    labels: ["space"],
  });
  return (space) => (event) => {
    switch (event.kind) {
      case "ends": {
        const left = event.at - Date.now();
        end.set({ space }, event.at / 1000);
        const fields = { space, at: new Date(event.at).toISOString(), next: RENEW };
        if (left <= 0) log.error("THE CERTIFICATE OF THE PUBLIC EXCHANGE HAS ENDED: clients refuse it", fields);
        else if (left < LATE_MS) log.warn("the certificate of the public exchange ends soon", fields);
        break;
      }
      case "renewed":
        log.info("the certificate of the public exchange was renewed", { space });
        break;
      case "kept":
        log.warn("the new certificate of the public exchange can't be used; the one before is served on", {
          space,
          err: event.cause,
        });
        break;
      case "exposed":
        log.warn("the key of the public exchange is exposed", { space, warning: event.warning });
    }
  };
}
