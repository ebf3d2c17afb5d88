/** Who a session is, decided before anything is dialled. */
import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { resolveIdentity } from "../../shared/client/identity.ts";
import { resolveTarget } from "../../shared/client/options.ts";
import { connect } from "../../shared/client/index.ts";
import { NO_COMMANDS } from "../../shared/grants/client-profiles.ts";
import { Account } from "../../shared/grants/row.ts";
import { ErrorCode } from "../../shared/protocol/base/errors.ts";
import { drawLifecycleUid, drawNonce, principal } from "../../shared/protocol/base/principals.ts";
import { formatCreds } from "../../shared/trust/creds.ts";
import { mintUser } from "../../shared/trust/jwt.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { refusal } from "../support/refusal.ts";

const OWNER = `u_${"a".repeat(26)}`;
const folder = mkdtempSync(join(tmpdir(), "cotal-identity-"));
const uid = drawLifecycleUid(randomBytes);
const inboxNonce = drawNonce(randomBytes);
let text = "";

async function mint(actor: string, nonce = inboxNonce, role?: string): Promise<string> {
  const signer = newKey("account");
  const key = newKey("user");
  const { jwt } = await mintUser({
    profile: "agent",
    account: Account.Front,
    accountKey: signer.publicKey,
    signer,
    userKey: key.publicKey,
    expires: Math.floor(Date.now() / 1000) + 3600,
    limits: { subs: 100, payload: 1_000_000 },
    name: "Alice",
    scope: {
      space: "main",
      holder: { principal: principal(OWNER, actor), uid },
      inboxNonce: nonce,
      allowSubscribe: ["general"],
      allowPublish: ["general"],
      ...NO_COMMANDS,
      ...(role === undefined ? {} : { role }),
    },
  });
  return formatCreds(jwt, key);
}

beforeAll(async () => {
  text = await mint("alice");
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe("a static credential", () => {
  test("gives principal, uid, inbox, name and space", () => {
    const me = resolveIdentity({ credentials: { kind: "static", text } }, randomBytes);
    expect(me).toMatchObject({ id: `${OWNER}.alice`, uid, name: "Alice", space: "main", mode: "auth" });
    expect(me.inboxPrefix).toBe(`_INBOX_${uid}_${inboxNonce}`);
    expect(me.allowSubscribe).toEqual(["general"]);
  });

  test("W2.05: a principal that differs from the credential's fails, and nothing is dialled", async () => {
    const options = {
      servers: ["127.0.0.1:1"],
      credentials: { kind: "static", text } as const,
      principal: `${OWNER}.mallory`,
    };
    const events: unknown[] = [];
    const asked = connect({ ...options, onEvent: (event) => events.push(event) });
    await expect(asked).rejects.toMatchObject({ code: ErrorCode.FailedPrecondition, outcome: "not-executed" });
    expect(events).toEqual([]);
  });

  test("another space or a role that it does not hold fails the same way", () => {
    const credentials = { kind: "static", text } as const;
    expect(refusal(() => resolveIdentity({ credentials, space: "lab" }, randomBytes)).code).toBe("failed-precondition");
    expect(refusal(() => resolveIdentity({ credentials, role: "ops" }, randomBytes)).code).toBe("failed-precondition");
  });

  test("W2.04: the file is read again at each dial; a new nkey of the same identity is taken up", async () => {
    const file = join(folder, "alice.creds");
    writeFileSync(file, text);
    const me = resolveIdentity({ credentials: { kind: "static", file } }, randomBytes);
    const source = me.authenticator as { jwt: () => string };
    const first = source.jwt();
    writeFileSync(file, await mint("alice"));
    const second = source.jwt();
    expect(second).not.toBe(first);
    writeFileSync(file, await mint("mallory"));
    expect(refusal(() => source.jwt()).code).toBe(ErrorCode.FailedPrecondition);
    writeFileSync(file, await mint("alice", drawNonce(randomBytes)));
    expect(refusal(() => source.jwt()).code).toBe(ErrorCode.FailedPrecondition);
  });

  test("what is no credential is refused without a word of it", () => {
    const secret = "SUAM".repeat(14);
    const error = refusal(() => resolveIdentity({ credentials: { kind: "static", text: secret } }, randomBytes));
    expect(error.message).not.toContain("SUAM");
  });
});

describe("an open space", () => {
  test("the owner is local, and the uid is the caller's to keep", () => {
    const me = resolveIdentity({ credentials: { kind: "open", actor: "bob", uid }, space: "my lab" }, randomBytes);
    expect(me).toMatchObject({ id: "local.bob", uid, mode: "open", space: "my_lab", name: "bob" });
    expect(me.inboxPrefix.startsWith(`_INBOX_${uid}_`)).toBe(true);
  });

  test("a malformed uid, actor or name is refused", () => {
    for (const credentials of [
      { kind: "open", actor: "b-b" },
      { kind: "open", actor: "" },
      { kind: "open", actor: "bob", uid: "short" },
    ] as const) {
      expect(refusal(() => resolveIdentity({ credentials }, randomBytes)).code).toBe(ErrorCode.BadRequest);
    }
  });

  test("W6.11: a name of 129 characters, or of two lines, is refused at connect", () => {
    const credentials = { kind: "open", actor: "bob" } as const;
    for (const name of ["n".repeat(129), "", "a\nb"]) {
      expect(refusal(() => resolveIdentity({ credentials, name }, randomBytes)).code).toBe(ErrorCode.BadRequest);
    }
    expect(resolveIdentity({ credentials, name: "n".repeat(128) }, randomBytes).name).toHaveLength(128);
  });
});

describe("W10.01: join links", () => {
  const open = { kind: "open", actor: "bob" } as const;

  test("give server, space, channels and secret, and TLS where they ask for it", () => {
    const plain = resolveTarget({
      link: "cotal://s3cret@broker.example/lab?channel=a,b&channels=c",
      credentials: open,
    });
    expect(plain).toMatchObject({ servers: ["broker.example:4222"], tls: undefined, channels: ["a", "b", "c"] });
    expect(plain.identity).toMatchObject({ space: "lab" });
    expect(plain.identity.credentials).toMatchObject({ secret: { kind: "token", token: "s3cret" } });
    expect(JSON.stringify(plain.servers)).not.toContain("s3cret");
    expect(resolveTarget({ link: "cotals://broker.example:7/lab", credentials: open }).tls).toEqual({});
  });

  test("a secret excludes a credential, and a link excludes servers", () => {
    const link = "cotal://u:p@broker.example/main";
    const credentials = { kind: "static", text } as const;
    expect(refusal(() => resolveTarget({ link, credentials })).code).toBe(ErrorCode.BadRequest);
    expect(refusal(() => resolveTarget({ link, servers: ["a:1"], credentials: open })).code).toBe(ErrorCode.BadRequest);
    expect(refusal(() => resolveTarget({ credentials: open })).code).toBe(ErrorCode.BadRequest);
  });
});
