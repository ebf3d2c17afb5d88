/**
 * The faces of one space: where a proof becomes a bearer (§10). One for programs of this machine, always;
 * one for everybody, if it is asked for.
 *
 * Invariants
 * 1. The listeners of a space are its own; keys, ledger and connect limits are those of the space.
 * 2. Each face has an exchange and a probing budget of its own: junk on the public one costs the other nothing.
 * 3. The development issuer exists on the loopback face alone: its routes, and the worth of its tokens.
 * 4. All of them are open, or none.
 */
import { randomBytes } from "node:crypto";
import { CotalError, ErrorCode } from "../../shared/protocol/base/errors.ts";
import { ExchangePath } from "../../shared/protocol/endpoint/exchange-shapes.ts";
import { Face } from "../../shared/protocol/endpoint/views.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { sentinelUser } from "../../shared/trust/sentinel.ts";
import { createDevIssuer } from "./dev-issuer.ts";
import type { Rate } from "../../shared/serve/buckets.ts";
import { type ChatEvent, chatRoutes } from "./edge/chat-routes.ts";
import type { ConnectLimits } from "./edge/connect-limits.ts";
import { type ExchangeEvent, createExchange } from "./edge/exchange.ts";
import { facePath, newCapability, removeFaceFile, writeFaceFile } from "./edge/face-file.ts";
import type { TlsEvent } from "./edge/face-tls.ts";
import { type FaceEvent, type FaceOptions, type FaceRoute, type OpenFace, startFace } from "./edge/http.ts";
import {
  type DmReaderProofs,
  type IdentityProvider,
  createDmReaderProofs,
  createIdentityProvider,
} from "./edge/idp.ts";
import { managerInstances } from "./edge/manager-instances.ts";
import { retireDoor } from "./edge/retire-door.ts";
import { createProbingBudget } from "./edge/probing-budget.ts";
import { type WindowSize, createSelectionWindows } from "./edge/selection-windows.ts";
import { signInRoute } from "./edge/sign-in.ts";
import type { AuthKeys } from "./keys.ts";
import type { ActorAdministration, Authority } from "./plane/authority-type.ts";
import type { Chat } from "./plane/chat/chat.ts";
import { type OperatorFace, capabilityIn } from "./operator-face.ts";
import { FACE_SETTING, type PublicFace } from "./public-faces.ts";

export type FaceSettings = {
  readonly idp:
    | {
        readonly issuer: string;
        readonly audience: string;
        readonly jwks?: string;
        readonly algorithms: readonly string[];
        readonly scopes: readonly string[];
        /** Of tokens that open one inbox and nothing else (§10 `dm-reader`); another than `audience`. */
        readonly dmReaderAudience?: string;
      }
    | undefined;
  readonly devIssuer: boolean;
  readonly faceFile: string;
  readonly operatorFace: OperatorFace;
  readonly publicFace: PublicFace | undefined;
  readonly clientServers: readonly string[] | undefined;
  /** Requests of one address without a good proof, on each face. */
  readonly probes: Rate;
  /** Exchanges at once, on each face. */
  readonly exchanges: number;
  /** Refused selections of a manager, on the public face. */
  readonly selection: WindowSize;
  /** How old a proof may be that opens a chat session. */
  readonly chatProofSeconds: number;
  readonly onExchange: (event: ExchangeEvent & { readonly face: Face }) => void;
  readonly onChat: (event: ChatEvent) => void;
  readonly onFace: (event: FaceEvent) => void;
  readonly onTls: (event: TlsEvent) => void;
  /** The development issuer is on. */
  readonly onDevIssuer: () => void;
};

type FaceKeys = Pick<AuthKeys, "folder" | "authSigner" | "bearer" | "ownerSecret"> & {
  readonly file: Pick<AuthKeys["file"], "auth">;
};

export type FaceSource = FaceSettings & {
  readonly space: string;
  readonly keys: FaceKeys;
  readonly authority: Authority & Pick<ActorAdministration, "retireRevoked">;
  readonly chat: Chat;
  readonly limits: ConnectLimits;
  /** Of this space's bearers. */
  readonly scope: { readonly issuer: string; readonly audience: string };
  readonly isReady: () => boolean;
};

export type OpenFaces = {
  /** Addresses, by face. */
  readonly urls: { readonly [Face.Loopback]: string; readonly [Face.Public]?: string };
  /** Safe to call again. */
  readonly close: () => Promise<void>;
};

/** Clients present the same sentinel whichever face they asked. */
type Source = FaceSource & { readonly sentinel: string; readonly dmReader: DmReaderProofs | undefined };

export async function openFaces(asked: FaceSource): Promise<OpenFaces> {
  const source: Source = { ...asked, sentinel: newSentinel(asked.keys), dmReader: dmReaderProofs(asked) };
  const { publicFace } = source;
  const idp = await providers(source);
  const opened: OpenFace[] = [];
  let closing: Promise<void> | undefined;
  let written: Parameters<typeof writeFaceFile>[1] | undefined;
  const path = facePath(source.faceFile, source.space);
  const close = (): Promise<void> =>
    (closing ??= (async () => {
      if (written !== undefined) removeFaceFile(path, written);
      await Promise.all(opened.map((face) => face.close()));
    })());
  const open = async (own: OwnOptions, routes: readonly FaceRoute[]): Promise<string> => {
    const face = await startFace({ ...commonOptions(source), ...own, routes });
    opened.push(face);
    return face.url;
  };
  try {
    const everybodys =
      publicFace === undefined
        ? undefined
        : await open(publicOptions(publicFace, source), routesOf(source, Face.Public, idp.ofIssuer()));
    const { operatorFace } = source;
    const capability = operatorFace.kind === "machine" ? newCapability() : capabilityIn(operatorFace.capability);
    const url = await open(loopbackOptions(source, capability), [
      ...routesOf(source, Face.Loopback, idp.ofMachine()),
      retireDoor(source),
      ...idp.routes,
    ]);
    // Last: whoever finds the file finds all of it served.
    written = { url, capability };
    writeFace(path, written);
    return { urls: { loopback: url, ...(everybodys === undefined ? {} : { public: everybodys }) }, close };
  } catch (error) {
    await close();
    throw error;
  }
}

function newSentinel({ file, authSigner }: FaceKeys): string {
  return sentinelUser({
    account: file.auth,
    signer: authSigner,
    userKey: newKey("user").publicKey,
    nowSeconds: Math.floor(Date.now() / 1000),
  });
}

type OwnOptions = Pick<FaceOptions, "kind" | "host" | "port" | "setting">;

function commonOptions({ keys, isReady, onFace }: FaceSource) {
  return { jwks: [keys.bearer.jwk], isReady, onEvent: onFace } as const;
}

function loopbackOptions({ operatorFace: at }: FaceSource, capability: string): OwnOptions {
  const kind = { face: Face.Loopback, capability, reach: at.kind } as const;
  return at.kind === "machine"
    ? { kind, host: "127.0.0.1", port: at.port, setting: FACE_SETTING.port }
    : { kind, host: at.host, port: at.port, setting: FACE_SETTING.face };
}

function publicOptions({ host, port, ...before }: PublicFace, { onTls }: FaceSource): OwnOptions {
  return { kind: { face: Face.Public, onTls, ...before }, host, port, setting: FACE_SETTING.public };
}

const clock = (): number => performance.now();

/** What either face serves; §10 says which of it depends on the face, and each route asks. */
function routesOf(source: Source, face: Face, idp: IdentityProvider): readonly FaceRoute[] {
  // One budget for all doors of a face: who is refused at one has asked at all of them.
  const budget = createProbingBudget(source.probes, clock);
  const { space, keys, authority, limits, scope, sentinel, clientServers, exchanges, dmReader } = source;
  const { ownerSecret } = keys;
  const exchange = createExchange({
    space,
    ownerSecret,
    idp,
    ...(dmReader === undefined ? {} : { dmReader }),
    authority,
    limits,
    bearer: { ...scope, signer: keys.bearer },
    sentinel,
    ...(clientServers === undefined ? {} : { servers: clientServers }),
    budget,
    windows: createSelectionWindows(source.selection, clock),
    maxInFlight: exchanges,
    now: Date.now,
    clock,
    random: randomBytes,
    onEvent: (event) => source.onExchange({ ...event, face }),
  });
  const managers = managerInstances({ space, ownerSecret, idp, authority, budget });
  return [
    { method: "POST", path: ExchangePath.Exchange, guarded: true, handle: exchange },
    { method: "POST", path: ExchangePath.ManagerInstances, guarded: true, handle: managers },
    ...chatRoutes({
      space,
      ownerSecret,
      idp,
      limits,
      budget,
      sentinel,
      clock,
      ...(clientServers === undefined ? {} : { servers: clientServers }),
      chat: source.chat,
      freshSeconds: source.chatProofSeconds,
      now: Date.now,
      onEvent: source.onChat,
    }),
    signInRoute(source.idp),
  ];
}

type Providers = {
  /** For programs of this machine: the development issuer counts here, if it is on. */
  readonly ofMachine: () => IdentityProvider;
  /** For everybody: only the identity provider counts. */
  readonly ofIssuer: () => IdentityProvider;
  /** Of the development issuer, for the loopback face. */
  readonly routes: readonly FaceRoute[];
};

/** Who proves who somebody is, for each face. */
async function providers({ idp, devIssuer, keys, space, onDevIssuer }: FaceSource): Promise<Providers> {
  const own = idp === undefined ? undefined : createIdentityProvider({ ...idp, now: Date.now });
  const ofIssuer = (): IdentityProvider => own ?? nobody(devIssuer);
  if (!devIssuer) return { ofMachine: ofIssuer, ofIssuer, routes: [] };
  const dev = await createDevIssuer({ folder: keys.folder, space, now: Date.now });
  onDevIssuer();
  return { ofMachine: () => dev.beside(own), ofIssuer, routes: dev.routes };
}

/** Proofs for one inbox; `undefined` where no audience is set for them. */
function dmReaderProofs({ idp }: FaceSettings): DmReaderProofs | undefined {
  const dmReaderAudience = idp?.dmReaderAudience;
  if (idp === undefined || dmReaderAudience === undefined) return undefined;
  if (dmReaderAudience === idp.audience) {
    throw new CotalError(ErrorCode.FailedPrecondition, "the audience of dm-reader tokens is the ordinary one", {
      next: "set COTAL_IDP_DM_READER_AUDIENCE to an audience that the issuer gives to nothing else",
    });
  }
  return createDmReaderProofs({ ...idp, audience: dmReaderAudience, now: Date.now });
}

function nobody(devIssuer: boolean): never {
  const why = devIssuer
    ? "the development issuer proves nobody to the public face, and there is no identity provider"
    : "nothing proves who anybody is: there is no identity provider";
  throw new CotalError(ErrorCode.FailedPrecondition, why, {
    next: `set COTAL_IDP_ISSUER and COTAL_IDP_AUDIENCE; on a machine of your own, ${
      devIssuer ? `leave ${FACE_SETTING.public} out` : "COTAL_AUTH_DEV_ISSUER=true"
    }`,
  });
}

const MAKE_ROOM = "make room on that disk; it is tried again by itself";

function writeFace(path: string, face: Parameters<typeof writeFaceFile>[1]): void {
  try {
    writeFaceFile(path, face);
  } catch (cause) {
    const { code = "" } = cause as NodeJS.ErrnoException;
    throw new CotalError(ErrorCode.FailedPrecondition, `the file ${path} can't be written (${code})`, {
      next: code === "ENOSPC" ? MAKE_ROOM : "set COTAL_AUTH_FACE_FILE to a place that this process may write",
      cause,
    });
  }
}
