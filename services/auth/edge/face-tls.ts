/**
 * The certificate of a public face. It is read again while it is served: whoever renews it replaces the
 * files, and nothing has to be restarted or told.
 *
 * Invariants
 * 1. A pair that can't be used (half written, a key of another certificate) is told once, and the pair
 *    before it is served on.
 * 2. The files are compared by content: a renewal that swaps a link is seen like any other.
 * 3. No message holds anything that a file does.
 * 4. When the certificate that is served ends is told as it is read, and once a day: nobody else looks.
 */
import { X509Certificate, createHash } from "node:crypto";
import type { Server } from "node:https";
import { type SecureContextOptions, createSecureContext } from "node:tls";
import { redactText } from "../../../shared/daemon/redact.ts";
import { inspectSecret } from "../../../shared/daemon/secrets.ts";
import { CotalError, ErrorCode } from "../../../shared/protocol/base/errors.ts";

export type TlsFiles = {
  /** PEM: the certificate, and those between it and its root. */
  readonly cert: string;
  readonly key: string;
  /** How often they are looked at, in milliseconds. */
  readonly lookMs?: number;
};

export type TlsEvent =
  /** The certificate that is served ends then, in epoch milliseconds; perhaps it has. */
  | { readonly kind: "ends"; readonly at: number }
  | { readonly kind: "renewed" }
  /** What is there now can't be used. */
  | { readonly kind: "kept"; readonly cause: unknown }
  /** The key's file is not its owner's alone. */
  | { readonly kind: "exposed"; readonly warning: string };

export const TLS_SETTING = { cert: "COTAL_AUTH_PUBLIC_TLS_CERT", key: "COTAL_AUTH_PUBLIC_TLS_KEY" } as const;

const LOOK_MS = 10_000;
const DAY_MS = 86_400_000;

type Pair = Required<Pick<SecureContextOptions, "cert" | "key" | "minVersion">>;

/** A pair to begin with, and how to serve the files' newest one from then on. */
export type KeptPair = {
  readonly pair: Pair;
  /** Ends with the function that comes back. */
  readonly keep: (server: Pick<Server, "setSecureContext">) => () => void;
};

/** Reads both files. Throws `failed-precondition` that names the setting to look at. */
export function openPair(files: TlsFiles, onEvent: (event: TlsEvent) => void): KeptPair {
  let ends = Number.NaN;
  const sayEnd = (): void => onEvent({ kind: "ends", at: ends });
  const read = (): Pair => {
    const cert = textOf(files.cert, TLS_SETTING.cert);
    const key = textOf(files.key, TLS_SETTING.key);
    const pair = usable(cert.text, key.text);
    ends = endOf(cert.text);
    sayEnd();
    if (key.warning !== undefined) {
      onEvent({ kind: "exposed", warning: `the file ${redactText(files.key)} ${key.warning}` });
    }
    return pair;
  };
  // Before the read: a change in between is seen at the first look.
  let seen = stampOf(files);
  return {
    pair: read(),
    keep: (server) => {
      const timer = setInterval(() => {
        const found = stampOf(files);
        if (found === seen) return;
        seen = found;
        try {
          server.setSecureContext(read());
          onEvent({ kind: "renewed" });
        } catch (cause) {
          onEvent({ kind: "kept", cause });
        }
      }, files.lookMs ?? LOOK_MS);
      const daily = setInterval(sayEnd, DAY_MS);
      for (const one of [timer, daily]) one.unref();
      return () => {
        clearInterval(timer);
        clearInterval(daily);
      };
    },
  };
}

function usable(cert: string, key: string): Pair {
  const pair = { cert, key, minVersion: "TLSv1.2" } as const;
  try {
    createSecureContext(pair);
    return pair;
  } catch (error) {
    // The library's words may quote what it read; its code is of a closed list.
    const code = error instanceof Error && "code" in error ? String(error.code) : "not PEM";
    throw unfit(`${TLS_SETTING.cert} and ${TLS_SETTING.key} name no certificate with its own key (${code})`);
  }
}

/** Of the first certificate: the server's own. */
function endOf(cert: string): number {
  return Date.parse(new X509Certificate(cert).validTo);
}

function textOf(path: string, of: string): { readonly text: string; readonly warning?: string } {
  const read = inspectSecret(path);
  if (read.ok) return read;
  throw unfit(`the file ${redactText(path)} of ${of} ${read.why}`);
}

/** What both files hold now, or that one can't be read. */
function stampOf(files: TlsFiles): string {
  const hash = createHash("sha256");
  for (const path of [files.cert, files.key]) {
    const read = inspectSecret(path);
    hash.update(read.ok ? `ok\0${read.text}\0` : `not\0${read.why}\0`);
  }
  return hash.digest("base64");
}

function unfit(why: string): CotalError {
  return new CotalError(ErrorCode.FailedPrecondition, `the public face has no certificate: ${why}`, {
    next: "put PEM files there that this process may read: the certificate with its chain, and its key",
  });
}
