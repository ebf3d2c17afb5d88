/** Agents of this machine in a compose project: sessions of the SDK over the exchange that its desk names. */
import { expect } from "vitest";
import { signedIn } from "../../cli/signed-in.ts";
import { type Session, connect } from "../../shared/client/index.ts";
import { eventually } from "./cli.ts";
import type { Compose } from "./compose.ts";

export type Agents = {
  /** A session of that actor, and of that role if one is named. */
  readonly as: (actor: string, role?: string) => Promise<Session>;
  /** Ends those that are open. */
  readonly closeAll: () => Promise<void>;
};

export function agentsOf(project: () => Compose): Agents {
  const sessions: Session[] = [];
  return {
    as: async (actor, role) => {
      const { server, state } = project();
      const session = await connect({
        servers: [server],
        credentials: signedIn({ actor, state }),
        reconnect: { kind: "endless", baseMs: 50, capMs: 500 },
        ...(role === undefined ? {} : { role }),
      });
      sessions.push(session);
      return session;
    },
    closeAll: async () => {
      await Promise.all(sessions.splice(0).map((session) => session.close()));
    },
  };
}

/** Joins until the membership stands too. */
export async function expectDurable(session: Session, channel: string, patienceMs = 180_000): Promise<void> {
  const joined = await eventually(
    () => session.join(channel),
    ({ state }) => state === "joined durable",
    patienceMs,
  );
  expect(joined).toMatchObject({ state: "joined durable" });
}
