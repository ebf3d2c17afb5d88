/**
 * Who has signed in to a space from this state folder: `<state>/spaces/<s>/login.json`.
 *
 * Invariants: the file is a secret (0600) when it holds a token; it is read again at each use, so that a
 * new sign-in reaches a command that runs.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { CotalError, ErrorCode, Outcome } from "../shared/protocol/base/errors.ts";
import { trustPaths, writePrivate } from "../shared/trust/folder.ts";

export const Login = z.discriminatedUnion("kind", [
  /** The one person of this machine, by the development issuer. */
  z.strictObject({ v: z.literal(1), kind: z.literal("dev") }),
  /** Somebody with a token of the space's identity provider. */
  z.strictObject({
    v: z.literal(1),
    kind: z.literal("token"),
    idToken: z.string(),
    /** Where the exchange is; this machine's, if left out. */
    exchange: z.string().optional(),
  }),
  /** Signed out: nobody, until the next sign-in. */
  z.strictObject({ v: z.literal(1), kind: z.literal("out") }),
]);
export type Login = z.infer<typeof Login>;

type Place = { readonly state: string; readonly space: string };

export function loginPath({ state, space }: Place): string {
  return join(trustPaths(state).space(space), "login.json");
}

/** The sign-in that is kept; `undefined` if there never was one. */
export function readLogin(place: Place): Login | undefined {
  const path = loginPath(place);
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === "ENOENT") return undefined;
    throw error;
  }
  try {
    return Login.parse(JSON.parse(text));
  } catch {
    // Without the cause: it may quote the file.
    throw new CotalError(ErrorCode.FailedPrecondition, `${path} does not hold a sign-in`, {
      outcome: Outcome.NotExecuted,
      next: "sign in again: cotal login",
    });
  }
}

export function writeLogin(place: Place, login: Login): void {
  writePrivate(loginPath(place), JSON.stringify(login));
}
