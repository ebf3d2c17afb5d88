/**
 * What the `callout` bench runs on: one broker, a space that our auth service lets people into and one
 * that a bare responder does, people who have signed in with a real identity provider, and clients.
 *
 * Every part is a process of its own, on both sides.
 */
import { type ChildProcess, fork } from "node:child_process";
import { join } from "node:path";
import { ExchangeAnswer, ExchangeHeader, ExchangePath } from "../../shared/protocol/endpoint/exchange-shapes.ts";
import { type AuthService, startAuthService } from "../support/auth-service.ts";
import { eventually } from "../support/cli.ts";
import { AS_LAUNCHED } from "../support/collected.ts";
import { startIdentityProvider } from "../support/identity-provider.ts";
import { startSpace } from "../support/space.ts";
import type { BareSetup, BareUp } from "./callout-bare.ts";
import type { Face, Load, Seat, Taken } from "./callout-load.ts";
import { ask, endChild } from "./child.ts";
import { type SideName, pipelined } from "./jobs.ts";

const OURS = "main";
const BARE = "bare";
const CLIENT = "cotal";
const UNLIMITED = "1000000";
/** As many exchanges as run at once while people sign in. */
const SIGN_INS = 16;

export type Crowd = {
  readonly people: number;
  /** Of each of them. */
  readonly actors: number;
};

/** One way to let people in: what its clients need. */
type Side = { readonly sentinel: string; readonly faces: Face[] };

type Order = { readonly count: number; readonly inFlight: number };

export type CalloutWorld = {
  /** Our auth services, in the order in which they came. */
  readonly services: readonly AuthService[];
  readonly connects: (side: SideName, order: Order & { readonly again?: number }) => Promise<Taken>;
  readonly exchanges: (side: SideName, order: Order) => Promise<Taken>;
  /** Another process on each side, which shares the work of the first. */
  readonly addResponder: () => Promise<void>;
  readonly close: () => Promise<void>;
};

export async function openCalloutWorld(
  crowd: Crowd,
  env: Readonly<Record<string, string>> = {},
): Promise<CalloutWorld> {
  const undo: (() => Promise<unknown>)[] = [];
  const close = async (): Promise<void> => {
    for (const back of undo.splice(0).toReversed()) await back();
  };
  const child = (program: string): ChildProcess => {
    const started = fork(join(import.meta.dirname, program), { serialization: "advanced" });
    undo.push(() => endChild(started));
    return started;
  };
  try {
    const idp = await startIdentityProvider({ clients: [CLIENT], life: 3600 });
    undo.push(() => idp.stop());
    const space = await startSpace({ auth: "user", spaces: [OURS] });
    undo.push(() => space.stop());
    const proof = { issuer: idp.issuer, audience: CLIENT, jwks: `${idp.issuer}/jwks` };
    const services: AuthService[] = [];
    const sides: Record<SideName, Side> = { ours: { sentinel: "", faces: [] }, bare: { sentinel: "", faces: [] } };
    const addOurs = async (): Promise<AuthService> => {
      const service = await startAuthService(space, {
        name: `auth-${services.length}`,
        env: { ...AS_LAUNCHED, ...settings(proof), ...env },
      });
      undo.push(() => service.stop());
      services.push(service);
      const { url, capability } = service.face();
      sides.ours.faces.push({
        url: `${url}${ExchangePath.Exchange}`,
        headers: { [ExchangeHeader.Capability]: capability },
      });
      return service;
    };
    const addBare = async (): Promise<void> => {
      const keys = join(space.state, "spaces", "{space}", "auth");
      const setup: BareSetup = { url: space.url, keys, space: BARE, ...proof };
      const { sentinel, exchange } = (await ask(child("callout-bare.ts"), "setup", setup)) as BareUp;
      sides.bare = { sentinel, faces: [...sides.bare.faces, { url: exchange, headers: {} }] };
    };
    const first = await addOurs();
    // Accounts and keys alone: nobody serves this space but the bare responders.
    await space.trust("space", "--space", BARE, "--server", space.url, "--auth", "user");
    await addBare();

    const tokens = new Map<string, string>();
    await pipelined(crowd.people, 4, async (n) => void tokens.set(`person_${n}`, await idp.signIn(`person_${n}`)));
    const bodies = [...tokens.values()].flatMap((idToken) =>
      Array.from({ length: crowd.actors }, (_, at) => ({ space: OURS, idToken, actor: `agent_${at}` })),
    );
    const answers = await signIn(first, bodies);
    const load = child("callout-load.ts");
    const tell = (told: Load): Promise<unknown> => ask(load, told.kind, told);
    const seats: Seat[] = answers.map(({ bearer, lifecycleUid: uid }) => ({ bearer, uid }));
    await tell({ kind: "seats", seats });

    sides.ours = { ...sides.ours, sentinel: answers[0]?.sentinel ?? "" };
    const texts = bodies.map((body) => JSON.stringify(body));
    const { port } = space.broker;
    return {
      services,
      connects: async (side, order) =>
        (await tell({ kind: "connects", port, sentinel: sides[side].sentinel, ...order })) as Taken,
      exchanges: async (side, order) =>
        (await tell({ kind: "exchanges", faces: sides[side].faces, bodies: texts, ...order })) as Taken,
      addResponder: async () => {
        await addOurs();
        await addBare();
      },
      close,
    };
  } catch (thrown) {
    await close();
    throw thrown;
  }
}

function settings(proof: Pick<BareSetup, "issuer" | "audience" | "jwks">): Readonly<Record<string, string>> {
  return {
    COTAL_SPACES: OURS,
    COTAL_AUTH_DEV_ISSUER: "false",
    COTAL_IDP_ISSUER: proof.issuer,
    COTAL_IDP_AUDIENCE: proof.audience,
    COTAL_IDP_JWKS: proof.jwks,
    // What is measured is not who has to wait.
    COTAL_AUTH_CONNECTS_PER_ACTOR: UNLIMITED,
    COTAL_AUTH_CONNECTS_PER_OWNER: UNLIMITED,
  };
}

/** Everybody's first exchange, which makes their actors. */
async function signIn(service: AuthService, bodies: readonly object[]): Promise<ExchangeAnswer[]> {
  const answers: ExchangeAnswer[] = [];
  const once = async (body: object): Promise<number> => {
    const answer = await service.post(ExchangePath.Exchange, body);
    if (answer.status === 200) answers.push(ExchangeAnswer.parse(answer.body));
    return answer.status;
  };
  // The service comes up before it holds the plane, which makes actors.
  const [first, ...others] = bodies;
  if (first === undefined) return answers;
  await eventually(
    () => once(first),
    (status) => status === 200,
  );
  await pipelined(others.length, SIGN_INS, async (n) => {
    const status = await once(others[n - 1] ?? {});
    if (status !== 200) throw new Error(`an exchange was refused with ${status}:\n${service.log()}`);
  });
  return answers;
}
