/**
 * What the auth service of a space has issued, as known from outside, beside the rows of its ledger (§13.1: every
 * credential that was ever released has its row). The connections that the brokers let into front on its word come from
 * the system account's own news, bearers from the answers of the exchange; the rows are read when the space ends.
 *
 * Both go to the folder of the run, which compares them at its end (scripts/test/issued.ts). Outside of `npm test` nothing
 * is watched.
 *
 * A broker says which name of a connection it has let in, and not under which key. So it is counted: as many as came
 * under one name have evidence under that name, each with the root that it names.
 */
import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { encodeUser } from "@nats-io/jwt";
import { ISSUED, ROWS, lineOf } from "../../scripts/test/issued.ts";
import { type Connection, openConnection } from "../../shared/broker/connect.ts";
import { createScanner } from "../../shared/broker/scanner.ts";
import { inboxPrefix } from "../../shared/protocol/base/broker-subjects.ts";
import { drawLifecycleUid, drawNonce } from "../../shared/protocol/base/principals.ts";
import { AuthFile } from "../../shared/trust/auth-folder.ts";
import { keptKey, trustPaths } from "../../shared/trust/folder.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { type Keep, kept } from "./printed.ts";
import { lookInto } from "./store-looker.ts";

export type IssuedAudit = {
  /** A bearer that the exchange has handed out. */
  readonly bearer: (bearer: string) => void;
  /** How many credentials are known by now. */
  readonly seen: () => number;
  /** Reads the rows of everything that was issued, while the broker is there. */
  readonly end: () => Promise<void>;
};

const NO_AUDIT: IssuedAudit = { bearer: () => undefined, seen: () => 0, end: () => Promise.resolve() };

type Let = { readonly client: { readonly user?: string; readonly name?: string; readonly issuer_key?: string } };

/** Longest wait for a broker that a test has left in whatever state. */
const PATIENT_MS = 5000;

/** Watches from now on. `url` is a server of the broker of this state folder, which has this space of people's. */
export async function auditIssues(
  state: string,
  url: string,
  space = "main",
  keep: Keep | undefined = kept,
): Promise<IssuedAudit> {
  const paths = trustPaths(state);
  const signing = join(paths.auth(space), AuthFile.FrontSigner);
  // Without an auth service nobody is let in on its word.
  if (keep === undefined || !existsSync(signing)) return NO_AUDIT;
  const signer = keptKey(signing, "account").publicKey;
  const account = keptKey(join(paths.spaceTrust(space), "front.nk"), "account").publicKey;
  /** By the name that a connection bears, or the key that it came with; and how many. */
  const came = new Map<string, { readonly count: number; readonly whose: string }>();
  const roots = new Map<string, string>();
  const system = await news(state, url);
  system.nc.subscribe(`$SYS.ACCOUNT.${account}.CONNECT`, {
    callback: (error, message) => {
      if (error !== null) return;
      const { user = "", name = "", issuer_key: issuer } = message.json<Let>().client;
      if (issuer !== signer) return;
      const before = came.get(name)?.count ?? 0;
      // With a JWT of its own it is its key that is told, which has one row however often it comes.
      if (isUserKey(user)) came.set(user, { count: 1, whose: `${space} ${name}` });
      else came.set(name, { count: before + 1, whose: `${space} ${user}` });
    },
  });
  await system.nc.flush();
  return {
    bearer: (bearer) => {
      const { act } = payloadOf(bearer);
      roots.set(`cred.${act.lifecycleUid}.${act.credentialId}`, `${space} ${act.owner}.${act.actor}`);
    },
    seen: () => [...came.values()].reduce((sum, { count }) => sum + count, roots.size),
    end: async () => {
      const found = await Promise.race([
        system.isUp() ? rowsOf(state, url, space).catch(() => undefined) : undefined,
        sleep(PATIENT_MS, undefined, { ref: false }),
      ]);
      const note = (id: string, whose: string, row: string | undefined): void => {
        keep(ISSUED, lineOf(id, whose));
        if (found !== undefined) keep(ROWS, lineOf(id, row ?? ""));
      };
      for (const [name, { count, whose }] of came) {
        for (let at = 0; at < count; at += 1) note(`${name}#${at}`, whose, found?.of(name)[at]);
      }
      for (const [key, whose] of roots) note(key, whose, found?.keys.has(key) === true ? key : undefined);
      await system.close();
    },
  };
}

const isUserKey = (text: string): boolean => /^U[A-Z2-7]{55}$/.test(text);

type Act = {
  readonly owner: string;
  readonly actor: string;
  readonly lifecycleUid: string;
  readonly credentialId: string;
};

const payloadOf = (bearer: string): { readonly act: Act } =>
  JSON.parse(Buffer.from(bearer.split(".")[1] ?? "", "base64url").toString()) as { act: Act };

type Rows = {
  readonly keys: ReadonlySet<string>;
  /** Rows that stand for connections of this name, or of this user key. */
  readonly of: (name: string) => readonly string[];
};

async function rowsOf(state: string, url: string, space: string): Promise<Rows> {
  const bucket = `$KV.cotal_auth_${space}.`;
  const store = await lookInto(state, url, space);
  const keys = new Set<string>();
  const evidence: { readonly key: string; readonly connId: string; readonly root: string }[] = [];
  try {
    const scanner = createScanner(store, { stream: `KV_cotal_auth_${space}`, consumer: "issued_audit" });
    await scanner.scan([`${bucket}natkey.>`, `${bucket}cred.>`], ({ subject, data }) => {
      const key = subject.slice(bucket.length);
      // A marker: evidence that is over leaves under one.
      if (data.length === 0) return;
      keys.add(key);
      if (!key.startsWith("natkey.")) return;
      const row = JSON.parse(new TextDecoder().decode(data)) as Omit<Act, "owner" | "actor"> & { connId: string };
      evidence.push({ key, connId: row.connId, root: `cred.${row.lifecycleUid}.${row.credentialId}` });
    });
  } finally {
    await store.close();
  }
  const by = new Map<string, string[]>();
  const add = (name: string, key: string) => by.set(name, [...(by.get(name) ?? []), key]);
  for (const { key, connId, root } of evidence) {
    if (!keys.has(root)) continue;
    add(connId, key);
    add(key.slice("natkey.".length), key);
  }
  for (const key of keys) {
    const [family, , id = ""] = key.split(".");
    if (family === "cred" && isUserKey(id)) add(id, key);
  }
  return { keys, of: (name) => by.get(name) ?? [] };
}

/** A user of the system account, which hears what every server tells there. */
async function news(state: string, url: string): Promise<Connection> {
  const paths = trustPaths(state);
  const user = newKey("user");
  const jwt = await encodeUser("issued audit", user.publicKey, keptKey(paths.systemSigner, "account").pair, {
    issuer_account: keptKey(paths.systemKey, "account").publicKey,
  });
  return openConnection({
    servers: [url],
    authenticator: { jwt: () => jwt, sign: user.sign },
    inboxPrefix: inboxPrefix(drawLifecycleUid(randomBytes), drawNonce(randomBytes)),
    name: "issued audit",
    reconnect: { kind: "endless" },
  });
}
