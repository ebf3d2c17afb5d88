/** Asks whether a plane of this machine's space is served, as its operator (§6.1): presence only. */
import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { openConnection } from "../shared/broker/connect.ts";
import { watchDenials } from "../shared/client/denials.ts";
import { dialedAs } from "../shared/client/identity.ts";
import { probePlane } from "../shared/client/probe.ts";
import { openIdentity } from "../shared/client/user-identity.ts";
import type { Plane } from "../shared/protocol/base/subjects.ts";
import type { LivenessGrade } from "../shared/protocol/chat/liveness.ts";
import { trustPaths } from "../shared/trust/folder.ts";

export type Where = { readonly state: string; readonly space: string; readonly server: string };

const TIMEOUT_MS = 1500;
const DIAL_MS = 2000;

/** `undefined` where nobody's credential is at hand to ask with. Never throws: what can't be asked is `unknown`. */
export async function planeLiveness({ state, space, server }: Where, plane: Plane): Promise<LivenessGrade | undefined> {
  const file = trustPaths(state).operatorCreds(space);
  if (!existsSync(file)) return undefined;
  const reconnect = { kind: "bounded", attempts: 1 } as const;
  try {
    const identity = await openIdentity({ credentials: { kind: "static", file }, space }, randomBytes, { reconnect });
    const connection = await openConnection({
      servers: [server],
      reconnect,
      timeoutMs: DIAL_MS,
      ...dialedAs(identity),
    });
    try {
      const { nc } = connection;
      const denials = watchDenials(nc);
      const me = identity.principal;
      return await probePlane({ nc, space, me, denials, random: randomBytes, timeoutMs: TIMEOUT_MS }, plane);
    } finally {
      await connection.close();
    }
  } catch {
    return { responder: "unknown" };
  }
}
