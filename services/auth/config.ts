/** Settings of the auth service. */
import { defineConfig, setting } from "../../shared/daemon/config.ts";
import {
  COMMON_SETTINGS,
  SPACE_SETTINGS,
  line,
  list,
  listenPort,
  oneOf,
  onOff,
  urlOf,
  wholeNumber,
} from "../../shared/daemon/settings.ts";
import { LIFECYCLE_UID } from "../../shared/protocol/base/grammar.ts";
import { DEFAULT_MAX_IN_FLIGHT } from "./edge/callout.ts";
import { DEFAULT_LIMIT_SIZES } from "./edge/connect-limits.ts";
import { DEFAULT_MAX_EXCHANGES } from "./edge/exchange.ts";
import { MAX_CHAT_SLOTS } from "../../shared/protocol/ledger/chat-rows.ts";
import { DEFAULT_ALGORITHMS } from "./edge/idp.ts";
import { TLS_SETTING } from "./edge/face-tls.ts";
import { DEFAULT_PROBES } from "./edge/probing-budget.ts";
import { DEFAULT_WINDOW } from "./edge/selection-windows.ts";
import { FACE_SETTING, type PublicEntry, networks, publicEntries } from "./public-faces.ts";

const perMinute = wholeNumber(1, 1_000_000);
/** Decision H18. */
const EACH_PROCESS = "Each process counts for itself, each space apart.";

export const authConfig = defineConfig("COTAL_AUTH_", {
  ...COMMON_SETTINGS,
  ...SPACE_SETTINGS,
  keys: setting({
    env: "COTAL_AUTH_KEYS",
    schema: line,
    default: "/var/lib/cotal/spaces/{space}/auth",
    doc: "The folder with the auth service's own files; `{space}` stands for the space.",
    example: "/run/secrets/{space}",
  }),
  roles: setting({
    env: "COTAL_AUTH_ROLES",
    schema: oneOf(["both", "edge", "plane"]),
    default: "both",
    doc: "`edge` lets people in, `plane` keeps the ledger of who may come; one process may be both.",
    example: "edge",
  }),
  policy: setting({
    env: "COTAL_AUTH_POLICY",
    schema: oneOf(["granted", "auto"]),
    default: "granted",
    doc: "`granted`: an actor must be granted before anybody signs in as it. `auto`: signing in makes it.",
    example: "auto",
  }),
  defaultSubscribe: setting({
    env: "COTAL_AUTH_DEFAULT_SUBSCRIBE",
    schema: list,
    default: [">"],
    doc: "What an actor that was made by signing in may read.",
    example: "general,team.>",
  }),
  defaultPublish: setting({
    env: "COTAL_AUTH_DEFAULT_PUBLISH",
    schema: list,
    default: [">"],
    doc: "What an actor that was made by signing in may post to.",
    example: "general",
  }),
  actorsPerOwner: setting({
    env: "COTAL_AUTH_ACTORS_PER_OWNER",
    schema: wholeNumber(1, 10_000),
    default: 200,
    doc: "How many actors one person may make by signing in.",
    example: "50",
  }),
  chatSlots: setting({
    env: "COTAL_AUTH_CHAT_SLOTS",
    schema: wholeNumber(1, MAX_CHAT_SLOTS),
    default: 8,
    doc: "How many chat sessions one person may have at once.",
    example: "4",
  }),
  chatProofSeconds: setting({
    env: "COTAL_AUTH_CHAT_PROOF_SECONDS",
    schema: wholeNumber(10, 86_400),
    default: 300,
    doc: "How old the identity token may be that opens a chat session, in seconds since it was issued.",
    example: "120",
  }),
  idpIssuer: setting<string | undefined>({
    env: "COTAL_IDP_ISSUER",
    schema: urlOf("https", "http").optional(),
    doc: "The issuer whose ID tokens prove who somebody is, exactly as its tokens spell it.",
    example: "https://login.example.com",
  }),
  idpAudience: setting<string | undefined>({
    env: "COTAL_IDP_AUDIENCE",
    schema: line.optional(),
    doc: "The audience that the issuer's tokens for this space carry: the client's id there.",
    example: "cotal",
  }),
  idpJwks: setting<string | undefined>({
    env: "COTAL_IDP_JWKS",
    schema: urlOf("https", "http").optional(),
    doc: "Where the issuer's keys are; without it the issuer's discovery document says.",
    example: "https://login.example.com/jwks",
  }),
  idpAlgorithms: setting({
    env: "COTAL_IDP_ALGORITHMS",
    schema: list,
    default: [...DEFAULT_ALGORITHMS],
    doc: "The signatures that are accepted of the issuer.",
    example: "RS256",
  }),
  idpScopes: setting({
    env: "COTAL_IDP_SCOPES",
    schema: list,
    default: ["openid", "offline_access"],
    doc: "What `cotal login` asks the issuer for. `offline_access` keeps people signed in, where the issuer knows it.",
    example: "openid,offline_access,groups",
  }),
  idpDmReaderAudience: setting<string | undefined>({
    env: "COTAL_IDP_DM_READER_AUDIENCE",
    schema: line.optional(),
    doc: "The audience of the issuer's tokens that open one inbox and nothing else. Unset: there are none.",
    example: "cotal-dm-reader",
  }),
  localManager: setting<string | undefined>({
    env: "COTAL_AUTH_LOCAL_MANAGER",
    schema: line.refine((text) => LIFECYCLE_UID.test(text), "expected an instance id").optional(),
    doc: "The manager instance that people are sent to who name none, and no other one in its place. Unset: the one that is registered.",
    example: "managermanagermanagermanag",
  }),
  devIssuer: setting({
    env: "COTAL_AUTH_DEV_ISSUER",
    schema: onOff,
    default: false,
    doc: "Signs in one person without any proof, on the loopback face only. For a machine of one's own.",
    example: "true",
  }),
  faceFile: setting({
    env: "COTAL_AUTH_FACE_FILE",
    schema: line,
    default: "/run/cotal/exchange-{space}.json",
    doc: "Where the address and the capability of a space's loopback exchange are written, for programs of this machine.",
    example: "/run/user/1000/cotal/exchange-{space}.json",
  }),
  facePort: setting({
    env: FACE_SETTING.port,
    schema: listenPort,
    default: 0,
    doc: "The port of the loopback exchange; 0 takes a free one. Only 0 fits several spaces in one process.",
    example: "8443",
  }),
  face: setting<readonly PublicEntry[] | undefined>({
    env: FACE_SETTING.face,
    schema: publicEntries.optional(),
    doc: "In a container, where the loopback exchange of each space listens, as `COTAL_AUTH_PUBLIC` says it. Publish that port to 127.0.0.1 of the machine and nowhere else. Unset: on 127.0.0.1.",
    example: "main=0.0.0.0:7480",
  }),
  faceCapability: setting<string | undefined>({
    env: FACE_SETTING.capability,
    schema: line.optional(),
    doc: "The file with the capability of a loopback exchange in a container, the same for all instances; `{space}` stands for the space. Unset: each start draws one.",
    example: "/keys/{space}/face.capability",
  }),
  public: setting<readonly PublicEntry[] | undefined>({
    env: FACE_SETTING.public,
    schema: publicEntries.optional(),
    doc: "Where each space's public exchange listens, as `space=address:port`, separated by commas; an address alone if one space is served. Unset: there is none.",
    example: "main=0.0.0.0:8443,lab=[::]:8444",
  }),
  publicTlsCert: setting<string | undefined>({
    env: TLS_SETTING.cert,
    schema: line.optional(),
    doc: "The certificate of the public exchange with its chain, a PEM file; `{space}` stands for the space. Read again when it changes.",
    example: "/etc/cotal/tls/{space}/fullchain.pem",
  }),
  publicTlsKey: setting<string | undefined>({
    env: TLS_SETTING.key,
    schema: line.optional(),
    doc: "The certificate's key, a PEM file; `{space}` stands for the space. Read again when it changes.",
    example: "/etc/cotal/tls/{space}/privkey.pem",
  }),
  publicPlain: setting({
    env: "COTAL_AUTH_PUBLIC_PLAIN",
    schema: onOff,
    default: false,
    doc: "The public exchange speaks plain HTTP, because a proxy in front of it ends TLS. Never without one.",
    example: "true",
  }),
  publicProxies: setting<readonly string[] | undefined>({
    env: "COTAL_AUTH_PUBLIC_PROXIES",
    schema: networks.optional(),
    doc: "Addresses and networks of proxies whose X-Forwarded-For names the client. Unset: nobody's does.",
    example: "10.0.0.0/8,192.0.2.7",
  }),
  clientServers: setting<readonly string[] | undefined>({
    env: "COTAL_AUTH_CLIENT_SERVERS",
    schema: list.optional(),
    doc: "Addresses of the broker as clients reach it, told to those who sign in. Unset: they know.",
    example: "tls://broker.example.com:4222",
  }),
  connects: setting({
    env: "COTAL_AUTH_CONNECTS",
    schema: wholeNumber(1, 100_000),
    default: DEFAULT_MAX_IN_FLIGHT,
    doc: "Connects of one space that are looked at at once; the rest are denied.",
    example: "512",
  }),
  connectsPerActor: setting({
    env: "COTAL_AUTH_CONNECTS_PER_ACTOR",
    schema: perMinute,
    default: DEFAULT_LIMIT_SIZES.actor.perMinute,
    doc: `Connects of one actor in a minute, and as many at once. ${EACH_PROCESS}`,
    example: "30",
  }),
  connectsPerOwner: setting({
    env: "COTAL_AUTH_CONNECTS_PER_OWNER",
    schema: perMinute,
    default: DEFAULT_LIMIT_SIZES.owner.perMinute,
    doc: `Connects of all actors of one owner in a minute, and as many at once. ${EACH_PROCESS}`,
    example: "600",
  }),
  connectsPerHost: setting({
    env: "COTAL_AUTH_CONNECTS_PER_HOST",
    schema: perMinute,
    default: DEFAULT_LIMIT_SIZES.host.perMinute,
    doc: `Connects without a bearer of this space, from one address in a minute, and as many at once. ${EACH_PROCESS}`,
    example: "60",
  }),
  exchanges: setting({
    env: "COTAL_AUTH_EXCHANGES",
    schema: wholeNumber(1, 100_000),
    default: DEFAULT_MAX_EXCHANGES,
    doc: "Exchanges that one face works on at once, a quarter of them for one person; over it the answer is 503, to that person 429.",
    example: "128",
  }),
  probes: setting({
    env: "COTAL_AUTH_PROBES",
    schema: perMinute,
    default: DEFAULT_PROBES.perMinute,
    doc: "Requests of one address without a good proof in a minute, and as many at once, on one face; over it the answer is 429. A good proof is served all the same.",
    example: "60",
  }),
  selectionRefusals: setting({
    env: "COTAL_AUTH_SELECTION_REFUSALS",
    schema: wholeNumber(1, 10_000),
    default: DEFAULT_WINDOW.refusals,
    doc: "How often one person or agent may be refused a manager on the public exchange before it has to wait; requests that name one and those that don't count apart.",
    example: "20",
  }),
  selectionSeconds: setting({
    env: "COTAL_AUTH_SELECTION_SECONDS",
    schema: wholeNumber(1, 86_400),
    default: DEFAULT_WINDOW.seconds,
    doc: "Over how many seconds those refusals are counted.",
    example: "300",
  }),
  concurrency: setting({
    env: "COTAL_AUTH_CONCURRENCY",
    schema: wholeNumber(1, 10_000),
    default: 64,
    doc: "Requests of one space's endpoint that run at once; over it the answer is `resource-exhausted`.",
    example: "64",
  }),
  perCaller: setting({
    env: "COTAL_AUTH_PER_CALLER",
    schema: wholeNumber(1, 10_000),
    default: 16,
    doc: "Requests of one caller that run at once; over it that caller alone is told `resource-exhausted`.",
    example: "16",
  }),
});
