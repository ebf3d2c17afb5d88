/**
 * A second space and a public exchange are added to a project that runs, as the documentation says: by settings and
 * overlays, and one more `docker compose up -d`.
 */
import { chmodSync, chownSync, mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { X509Certificate } from "node:crypto";
import { connect as dialTls } from "node:tls";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { exchangeOnce } from "../../../cli/signin.ts";
import { ErrorCode } from "../../../shared/protocol/base/errors.ts";
import { newAuthority } from "../../support/certificates.ts";
import { endAll, eventually, textsOf } from "../../support/cli.ts";
import { type Compose, composeProject } from "../../support/compose.ts";
import { checkout, wordedIn } from "../../support/documented.ts";
import { ask } from "../../support/faces.ts";
import { presentBearer } from "../../support/presented.ts";

vi.setConfig({ testTimeout: 600_000, hookTimeout: 900_000 });

const UP = wordedIn("operating.md", "docker compose up -d --wait");
const AGAIN = wordedIn("operating.md", "docker compose up -d");
const FILES = ["docker-compose.yml", "deploy/second-space.yml", "deploy/public.yml"] as const;
const TWO_SPACES = { COTAL_SPACES: "main,lab", COTAL_AUTH_FACE: "main=0.0.0.0:7480,lab=0.0.0.0:7481" } as const;
const CONTAINER_UID = 1000;
const PATIENCE_MS = 120_000;

const place = checkout();
const authority = newAuthority();
let project: Compose;

beforeAll(async () => {
  project = await composeProject({ root: place.root, settings: { COTAL_SECOND_FACE_PORTS: "0" } });
  await project.compose("build");
  await project.shell(UP);
  await project.desk();
});
afterAll(async () => {
  endAll();
  await project?.down();
  place.remove();
});

/** Puts a new pair where the overlay mounts it; its fingerprint. */
function putCertificate(): string {
  const folder = join(place.root, "deploy", "tls");
  mkdirSync(folder, { recursive: true });
  const { cert, key, fingerprint } = authority.issue();
  for (const [name, text] of Object.entries({ "fullchain.pem": cert, "privkey.pem": key })) {
    writeFileSync(join(folder, name), text);
    chmodSync(join(folder, name), 0o600);
    if (process.getuid?.() === 0) chownSync(join(folder, name), CONTAINER_UID, CONTAINER_UID);
  }
  return fingerprint;
}

/** What the operator writes into `.env`. */
function settings(all: Readonly<Record<string, string>>): void {
  const lines = Object.entries(all).map(([name, value]) => `${name}=${value}\n`);
  writeFileSync(join(place.root, ".env"), lines.join(""));
}

const startedAt = async (): Promise<string> => {
  const [broker] = await project.of("broker");
  return JSON.stringify([broker?.Name, broker?.State.StartedAt]);
};

test("W9.02 a second space is added to the broker that runs, and what the first one holds is untouched", async () => {
  await project.json("send", "general", "of main", "--as", "alice");
  const before = await startedAt();
  settings({ COMPOSE_FILE: FILES.slice(0, 2).join(":"), ...TWO_SPACES });
  await project.shell(`${AGAIN} --wait`);
  await project.desk();
  expect(await startedAt()).toBe(before);
  expect(textsOf(await project.json("history", "general", "--as", "alice"))).toEqual(["of main"]);
  await project.json("send", "general", "of lab", "--as", "alice", "--space", "lab");
  expect(textsOf(await project.json("history", "general", "--as", "alice", "--space", "lab"))).toEqual(["of lab"]);
  expect(textsOf(await project.json("history", "general", "--as", "alice"))).toEqual(["of main"]);
  for (const space of ["main", "lab"]) {
    const said = await project.shell(`docker compose run --rm --no-deps cli doctor --space ${space}`);
    expect([space, said]).toEqual([space, expect.stringContaining("nothing found")]);
  }
});

test("W2.01 who is let into one space is nobody in the other", async () => {
  const { server, state } = project;
  const [main, lab] = await Promise.all(["main", "lab"].map((space) => exchangeOnce({ state, space }, "alice")));
  if (main === undefined || lab === undefined) throw new Error("nobody was signed in");
  expect(main.owner).not.toBe(lab.owner);
  await presentBearer(server, main);
  await presentBearer(server, lab);
  for (const crossed of [
    { ...main, sentinel: lab.sentinel },
    { ...lab, sentinel: main.sentinel },
  ]) {
    await expect(presentBearer(server, crossed)).rejects.toMatchObject({ code: ErrorCode.Unauthenticated });
  }
});

/** The certificate that is shown at a port of this machine, to who trusts our authority. */
function shownAt(port: number): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = dialTls({ host: "127.0.0.1", port, ca: authority.ca, servername: "localhost" }, () => {
      const { raw } = socket.getPeerCertificate();
      socket.end();
      resolve(new X509Certificate(raw).fingerprint256);
    });
    socket.once("error", reject);
  });
}

test("W10.04 the public exchange answers over TLS and over nothing else, and takes a renewed certificate up as it runs", async () => {
  const first = putCertificate();
  // A public exchange needs somebody who proves who people are; that one is never asked here.
  const provider = { COTAL_IDP_ISSUER: "https://login.example.com", COTAL_IDP_AUDIENCE: "cotal" };
  const listens = { COTAL_AUTH_PUBLIC: "main=0.0.0.0:8443" };
  settings({ COMPOSE_FILE: FILES.join(":"), ...TWO_SPACES, ...provider, ...listens });
  await project.shell(`${AGAIN} --wait`);
  await project.desk();
  const port = Number((await project.compose("port", "auth-edge", "8443")).trim().split(":").at(-1));
  const at = `https://localhost:${port}`;
  expect(await shownAt(port)).toBe(first);
  const keys = await ask(`${at}/jwks`, { method: "GET", ca: authority.ca });
  expect(keys.status).toBe(200);
  expect(keys.json).toHaveProperty("keys");
  const body = JSON.stringify({ space: "main", idToken: "no.such.token", actor: "alice" });
  const refused = await ask(`${at}/exchange`, { ca: authority.ca, body });
  expect([400, 401]).toContain(refused.status);
  await expect(fetch(`http://127.0.0.1:${port}/jwks`)).rejects.toThrow("fetch failed");
  const renewed = putCertificate();
  const [edge] = await project.of("auth-edge");
  const shown = await eventually(
    () => shownAt(port),
    (fingerprint) => fingerprint === renewed,
    PATIENCE_MS,
  );
  expect(shown).toBe(renewed);
  expect((await project.of("auth-edge")).map(({ State }) => State.StartedAt)).toEqual([edge?.State.StartedAt]);
});

test("A.05 no container was started again by itself, and none logged an error", async () => {
  const all = await project.containers();
  expect(all.filter(({ RestartCount, State }) => RestartCount > 0 || State.OOMKilled)).toEqual([]);
  expect(await project.errors()).toEqual([]);
});
