/** Which space, where, and with what: options, join links and the state folder. */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { UsageError } from "../../cli/exit.ts";
import { resolveTarget } from "../../cli/target.ts";
import { ownIdentity } from "../../launcher/process-identity.ts";
import { writePlane } from "../../launcher/plane-record.ts";
import { defaultState, prepareState, writeRemembered } from "../../launcher/state-folder.ts";
import { refusal } from "../support/refusal.ts";

let state: string;
beforeEach(() => {
  state = mkdtempSync(join(tmpdir(), "cotal-target-"));
  prepareState(state);
});
afterEach(() => rmSync(state, { recursive: true, force: true }));

describe("the server", () => {
  test("a fresh folder means the default port on this machine", () => {
    expect(resolveTarget({ state })).toMatchObject({ server: "nats://127.0.0.1:4222", space: "main" });
  });

  test("a remembered port is used while nothing runs, the running plane's address otherwise", () => {
    writeRemembered(state, { v: 1, port: 4999, auth: "static" });
    expect(resolveTarget({ state })).toMatchObject({ server: "nats://127.0.0.1:4999", auth: "static" });
    writePlane(state, {
      v: 1,
      phase: "ready",
      launcher: ownIdentity(),
      server: "nats://127.0.0.1:5001",
      port: 5001,
      auth: "static",
      space: "main",
      brokerVersion: "2.14.0",
      startedAt: "2026-01-01T00:00:00.000Z",
      children: [],
    });
    expect(resolveTarget({ state }).server).toBe("nats://127.0.0.1:5001");
  });

  test("an address of somebody else says nothing about how people get in", () => {
    writeRemembered(state, { v: 1, port: 4999, auth: "open" });
    expect(resolveTarget({ state, server: "other:4999" }).auth).toBeUndefined();
    expect(resolveTarget({ state, server: "nats://127.0.0.1:4999" }).auth).toBe("open");
  });
});

describe("join links", () => {
  test("W10.01: --server takes a link; its secret is kept apart from the address", () => {
    const target = resolveTarget({ state, server: "cotal://s3cret@host:5222/lab?channel=a,team.b" });
    expect(target).toMatchObject({
      server: "nats://host:5222",
      space: "lab",
      channels: ["a", "team.b"],
      secret: { kind: "token", token: "s3cret" },
    });
    expect(target.server).not.toContain("s3cret");
  });

  test("W10.01: cotals means TLS, and a missing port is 4222", () => {
    expect(resolveTarget({ state, server: "cotals://host/lab" }).server).toBe("tls://host:4222");
  });

  test.each([
    ["a link that does not parse", { server: "cotal://host" }],
    ["a link for another space than --space", { server: "cotal://host/lab", space: "main" }],
    ["an address with a secret in it", { server: "nats://user:pass@host:4222" }],
    ["an address of another scheme", { server: "http://host" }],
    ["a space name that is too long", { space: "x".repeat(33) }],
  ])("%s is a usage error, and repeats no secret", (_what, options) => {
    const error = refusal(() => resolveTarget({ state, ...options }));
    expect(error).toBeInstanceOf(UsageError);
    expect(`${error.message} ${error.next}`).not.toContain("pass");
  });
});

describe("the state folder", () => {
  test.each([
    [{ COTAL_STATE: "/a/b" }, "/a/b"],
    [{ COTAL_STATE: "", XDG_STATE_HOME: "/x" }, "/x/cotal"],
    [{ XDG_STATE_HOME: "/x" }, "/x/cotal"],
  ])("of %j is %s: an empty variable is an unset one", (env, expected) => {
    expect(defaultState(env)).toBe(expected);
  });
});
