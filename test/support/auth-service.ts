/**
 * The auth service of a test's space as a process of its own, with the development issuer unless told
 * otherwise, and what a client does with it over HTTP.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { type Connection, openConnection } from "../../shared/broker/connect.ts";
import { inboxPrefix } from "../../shared/protocol/base/broker-subjects.ts";
import { connId } from "../../shared/protocol/base/principals.ts";
import {
  DevToken,
  ExchangeAnswer,
  ExchangeHeader,
  ExchangePath,
  FaceFile,
} from "../../shared/protocol/endpoint/exchange-shapes.ts";
import { eventually } from "./cli.ts";
import { keepState, printed } from "./printed.ts";
import type { TestSpace } from "./space.ts";

const ROOT = join(import.meta.dirname, "..", "..");

export type AuthService = {
  readonly face: (space?: string) => FaceFile;
  /** An answer of the exchange's face, whatever it is. */
  readonly post: (path: string, body: unknown, space?: string) => Promise<{ status: number; body: unknown }>;
  /** Signs the machine's person in as this actor; throws what the exchange refused with. */
  readonly signIn: (actor: string, space?: string) => Promise<ExchangeAnswer>;
  /** A connection as an agent makes it: sentinel, bearer, and a name of the right lifecycle. */
  readonly connect: (answer: ExchangeAnswer, nonce?: string) => Promise<Connection>;
  readonly log: () => string;
  readonly pid: () => number;
  readonly kill: (signal?: NodeJS.Signals) => Promise<void>;
  readonly restart: () => Promise<void>;
  readonly stop: () => Promise<void>;
};

export type AuthServiceOptions = {
  readonly env?: Readonly<Record<string, string>>;
  /** Of several for one space. */
  readonly name?: string;
  /** How long it may take to come up. */
  readonly waitMs?: number;
  /** What it says once it can't come up, and tries on: it is waited for no longer. */
  readonly fails?: string;
};

/** What it needs of a world: where the broker is, what state there is, and who makes the stores. */
export type AuthWorld = Pick<TestSpace, "state" | "url" | "spaces" | "issued"> & {
  readonly provisioner: Pick<TestSpace["provisioner"], "ready">;
};

export async function startAuthService(space: AuthWorld, options: AuthServiceOptions = {}): Promise<AuthService> {
  const lines: string[] = [];
  const opened: Connection[] = [];
  const faces = join(space.state, "run", options.name ?? "auth");
  let child: ChildProcess;
  const start = async (): Promise<void> => {
    keepState(faces);
    rmSync(faces, { recursive: true, force: true });
    child = spawn(process.execPath, [join(ROOT, "services", "auth", "main.ts")], {
      env: {
        ...process.env,
        COTAL_SERVERS: space.url,
        COTAL_SPACES: "*",
        COTAL_AUTH_KEYS: join(space.state, "spaces", "{space}", "auth"),
        COTAL_AUTH_POLICY: "auto",
        COTAL_AUTH_DEV_ISSUER: "true",
        COTAL_AUTH_FACE_FILE: join(faces, "exchange-{space}.json"),
        COTAL_PARENT_IPC: "true",
        ...options.env,
      },
      stdio: ["ignore", "pipe", "pipe", "ipc"],
    });
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on("data", (chunk: Buffer) => {
        lines.push(chunk.toString());
        printed("auth", chunk.toString());
        if (lines.length > 5000) lines.shift();
      });
    }
    const isUp = (): boolean => space.spaces.every((one) => existsSync(facePath(one)));
    const hasFailed = (): boolean => options.fails !== undefined && lines.join("").includes(options.fails);
    await eventually(
      () => child.exitCode !== null || isUp() || hasFailed(),
      (done) => done,
      options.waitMs ?? 20_000,
    );
    if (isUp() && child.exitCode === null) {
      // The plane writes the provisioner's rows; an edge alone leaves it waiting.
      if (options.env?.["COTAL_AUTH_ROLES"] !== "edge") await space.provisioner.ready();
      return;
    }
    await end("SIGKILL");
    throw new Error(`the auth service did not come up:\n${lines.join("")}`);
  };
  const facePath = (name: string): string => join(faces, `exchange-${name}.json`);
  const first = space.spaces[0] ?? "main";
  const face = (name = first): FaceFile => FaceFile.parse(JSON.parse(readFileSync(facePath(name), "utf8")));
  const post: AuthService["post"] = async (path, body, name = first) => {
    const { url, capability } = face(name);
    const answer = await fetch(`${url}${path}`, {
      method: "POST",
      headers: { "content-type": "application/json", [ExchangeHeader.Capability]: capability },
      body: JSON.stringify(body),
    });
    const said: unknown = await answer.json();
    if (typeof said === "object" && said !== null && "bearer" in said) space.issued(String(said.bearer), name);
    return { status: answer.status, body: said };
  };
  const end = async (signal: NodeJS.Signals): Promise<void> => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill(signal);
    await ended;
  };
  await start();
  return {
    face,
    post,
    signIn: async (actor, name = first) => {
      const { idToken } = DevToken.parse((await post(ExchangePath.DevToken, {}, name)).body);
      const answer = await post(ExchangePath.Exchange, { space: name, idToken, actor }, name);
      if (answer.status === 200) return ExchangeAnswer.parse(answer.body);
      throw Object.assign(new Error(`exchange: ${answer.status} ${JSON.stringify(answer.body)}`), answer);
    },
    connect: async ({ bearer, sentinel, lifecycleUid }, nonce = "n".repeat(26)) => {
      const connection = await openConnection({
        servers: [space.url],
        authenticator: { jwt: () => sentinel, token: () => bearer },
        inboxPrefix: inboxPrefix(lifecycleUid, nonce),
        name: connId(lifecycleUid, nonce),
        reconnect: { kind: "bounded", attempts: 1 },
      });
      opened.push(connection);
      return connection;
    },
    log: () => lines.join(""),
    pid: () => child.pid ?? 0,
    kill: (signal = "SIGKILL") => end(signal),
    restart: start,
    stop: async () => {
      await Promise.all(opened.map((connection) => connection.close()));
      await end("SIGTERM");
      keepState(faces);
    },
  };
}
