/**
 * `reload-creds` (supplement F): takes up the credentials that come in files, now and not at the next dial.
 *
 * Invariants
 * 1. Every file is read before any connection is touched: one that is wrong changes nothing.
 * 2. A connection whose file holds what it has presented already stays as it is.
 * 3. `taken` is said once the broker has let the connection in with what is in the file.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { Connection } from "../../shared/broker/connect.ts";
import { CotalError, ErrorCode, Outcome } from "../../shared/protocol/base/errors.ts";
import type { ReloadCredsAnswer } from "../../shared/protocol/endpoint/delivery-shapes.ts";
import type { SystemUser } from "./keys.ts";

export type Reload = () => Promise<ReloadCredsAnswer>;

/** By profile: whose file it is, and what was opened with it; `undefined` while nothing is. */
type Files = Readonly<
  Record<string, () => readonly [Pick<SystemUser, "isPresented" | "expires">, Reconnecting] | undefined>
>;
type Reconnecting = Pick<Connection, "isUp"> & { readonly nc: Pick<Connection["nc"], "reconnect"> };

const PRESENTED_MS = 5000;
const LOOK_MS = 20;

export function reloadOver(files: Files): Reload {
  return async () => {
    const all = Object.entries(files).map(([profile, of]) => {
      const opened = of();
      return { profile, opened, held: opened === undefined ? undefined : fileOf(profile, opened[0]) };
    });
    return {
      credentials: await Promise.all(
        all.map(async ({ profile, opened, held }) => {
          // What is not connected reads its file when it is opened, again and again.
          if (opened === undefined || held === undefined) return { profile, taken: false, expires: null };
          if (held.isFresh) await present(profile, ...opened);
          return { profile, taken: held.isFresh, expires: Number.isFinite(held.end) ? held.end : null };
        }),
      ),
    };
  };
}

function fileOf(profile: string, user: Pick<SystemUser, "isPresented" | "expires">) {
  try {
    return { isFresh: !user.isPresented(), end: user.expires() };
  } catch {
    // Without the cause: it may quote the file.
    throw new CotalError(
      ErrorCode.FailedPrecondition,
      `the file of ${profile} holds no credential that this connection could take up`,
      {
        outcome: Outcome.NotExecuted,
        next: "run cotal up, or cotal space add, which renew it; one that was made anew is taken up by a restart of the daemon",
      },
    );
  }
}

async function present(
  profile: string,
  user: Pick<SystemUser, "isPresented">,
  { nc, isUp }: Reconnecting,
): Promise<void> {
  await nc.reconnect();
  for (const began = performance.now(); performance.now() - began < PRESENTED_MS;) {
    if (user.isPresented() && isUp()) return;
    await sleep(LOOK_MS);
  }
  throw new CotalError(ErrorCode.Unavailable, `the broker has not yet let ${profile} in again`, {
    outcome: Outcome.Unknown,
    next: "ask again; the log of the delivery service and of the broker say why, if it stays",
  });
}
