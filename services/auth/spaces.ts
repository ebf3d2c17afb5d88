/** The auth service's spaces: what is counted, logged and opened for each. */
import type { Context } from "../../shared/daemon/lifecycle.ts";
import { type Spaces, keepSpaces as keep } from "../../shared/daemon/spaces.ts";
import type { authConfig } from "./config.ts";
import { DEV_ISSUER_NOTICE } from "./dev-issuer.ts";
import type { Rate } from "./edge/buckets.ts";
import { DEFAULT_LIMIT_SIZES, type LimitSizes } from "./edge/connect-limits.ts";
import type { TlsEvent } from "./edge/face-tls.ts";
import { spacesWithAuthKeys } from "./keys.ts";
import type { EdgeSettings } from "./open-edge.ts";
import { openSpace } from "./open-space.ts";
import type { ClaimState } from "./plane/claim.ts";
import { publicFaces } from "./public-faces.ts";
import { chatSayings } from "./say-chat.ts";
import { evidenceSayings } from "./say-evidence.ts";
import { createSparing } from "./sparing.ts";

/** Lines about refusals, in all spaces together. */
const LINES_PER_MINUTE = 120;

export type Values = ReturnType<typeof authConfig.read>["values"];

export function keepSpaces(context: Context<Values>): Spaces {
  const { values, log } = context;
  const edge = edgeOf(context);
  const served = servedOf(context);
  const saying = chatSayings(
    context,
    createSparing(LINES_PER_MINUTE, () => performance.now()),
  );
  const ofEvidence = evidenceSayings(context);
  return keep({
    context,
    spaces: values.spaces,
    discover: () => spacesWithAuthKeys(values.keys),
    open: async (hooks) => {
      const { space } = hooks;
      const { onChat, onSweep } = saying(space);
      const opened = await openSpace({
        ...hooks,
        servers: values.servers,
        keysPattern: values.keys,
        roles: { edge: values.roles !== "plane", plane: values.roles !== "edge" },
        plane: {
          policy: values.policy,
          defaults: {
            allowSubscribe: values.defaultSubscribe,
            allowPublish: values.defaultPublish,
            capabilities: [],
          },
          actorsPerOwner: values.actorsPerOwner,
          localManager: values.localManager,
        },
        chat: { slotsPerOwner: values.chatSlots, onSweep },
        evidence: ofEvidence(space),
        edge: { ...edge(space), onChat },
        concurrency: values.concurrency,
        perCaller: values.perCaller,
        onServed: (event) => served(space, event.command, event.result, event.milliseconds),
        onPassedOver: (passed) => log.warn("a credential got no row in the ledger", { space, ...passed }),
        onPlane: (state) => sayPlane(context, space, state),
      });
      const { principal, epoch, faces } = opened;
      log.info("the space is served", { space, principal, epoch, exchange: faces });
      return opened;
    },
  });
}

function servedOf({ metrics }: Context<Values>) {
  const requests = metrics.counter({
    name: `${metrics.prefix}requests_total`,
    help: "Requests of the endpoint answered, by command and result.",
    labels: ["space", "command", "result"],
  });
  const seconds = metrics.histogram({
    name: `${metrics.prefix}request_duration_seconds`,
    help: "From a request's arrival to its answer.",
    labels: ["space", "command"],
  });
  return (space: string, command: string, result: string, milliseconds: number): void => {
    requests.inc({ space, command, result });
    seconds.observe({ space, command }, milliseconds / 1000);
  };
}

/** The edge's settings of a space, with its metrics. No event carries a secret (`edge/`). */
function edgeOf(context: Context<Values>): (space: string) => Omit<EdgeSettings, "onChat"> {
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
  const { idpIssuer: issuer, idpAudience: audience, idpJwks: jwks, idpAlgorithms: algorithms } = values;
  const { idpScopes: scopes, idpDmReaderAudience: dmReaderAudience } = values;
  const idp =
    issuer === undefined || audience === undefined
      ? undefined
      : {
          issuer,
          audience,
          algorithms,
          scopes,
          ...(jwks === undefined ? {} : { jwks }),
          ...(dmReaderAudience === undefined ? {} : { dmReaderAudience }),
        };
  const sparing = createSparing(LINES_PER_MINUTE, () => performance.now());
  const publicFace = publicFaces(values);
  return (space) => ({
    idp,
    devIssuer: values.devIssuer,
    faceFile: values.faceFile,
    facePort: values.facePort,
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
        connects.inc({ space, result: event.fault });
        return;
      }
      if (event.kind === "unanswered") {
        connects.inc({ space, result: event.kind });
        sparing((more) => log.warn("a connect got no answer", { space, err: event.cause, ...more }));
        return;
      }
      connects.inc({ space, result: event.kind === "allowed" ? "ok" : event.reason });
      connectSeconds.observe({ space }, event.milliseconds / 1000);
      if (event.kind === "allowed") log.debug("connected", { space, principal: event.principal });
      else {
        const { principal, line, cause } = event;
        sparing((more) => log.info("denied", { space, principal, reason: line, err: cause, ...more }));
      }
    },
    onExchange: ({ face, result, principal, milliseconds, cause }) => {
      exchanges.inc({ space, face, result });
      exchangeSeconds.observe({ space }, milliseconds / 1000);
      log.debug("exchanged", { space, face, result, principal, err: cause });
    },
    onFace: ({ route, status, cause }) => {
      if (status >= 500)
        sparing((more) => log.warn("the exchange failed", { space, route, status, err: cause, ...more }));
    },
    onTls: (event) => sayTls(context, space, event),
    onDevIssuer: () => log.warn(DEV_ISSUER_NOTICE, { space }),
  });
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

function sayTls({ log }: Context<Values>, space: string, event: TlsEvent): void {
  switch (event.kind) {
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
}

const PLANE_WORDS: Readonly<Record<ClaimState["kind"], string>> = {
  held: "this process holds the authority plane of the space",
  "live-peer": "another process holds the authority plane of the space; this one waits and lets in who is enrolled",
  inconclusive: "whether the holder of the authority plane is alive can't be told; this process waits",
  outrun: "another process was faster to take the authority plane; this one waits",
  lost: "the connection that held the authority plane has ended; it is claimed anew",
  failed: "the authority plane can't be claimed; it is tried again",
};

function sayPlane({ log }: Context<Values>, space: string, state: ClaimState): void {
  const { kind, ...rest } = state;
  const fields = { space, plane: kind, ...("cause" in rest ? { err: rest.cause } : rest) };
  if (kind === "held" || kind === "live-peer" || kind === "outrun") log.info(PLANE_WORDS[kind], fields);
  else log.warn(PLANE_WORDS[kind], fields);
}
