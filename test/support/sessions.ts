/** Sessions of the SDK for tests: opened by actor, with their events kept, and closed at the end. */
import { type Session, type SessionEvent, type SessionOptions, connect } from "../../shared/client/index.ts";
import type { InboxItem } from "../../shared/client/index.ts";
import type { MintOptions, TestSpace } from "./space.ts";

export type TestSession = Session & { readonly told: readonly SessionEvent[] };

export type Sessions = {
  /** A session of an open space. */
  readonly open: (actor: string, more?: Partial<SessionOptions>) => Promise<TestSession>;
  /** A session with a credential that is minted for it. */
  readonly minted: (mint: MintOptions, more?: Partial<SessionOptions>) => Promise<TestSession>;
  /** A session with options of the test's own. */
  readonly own: (options: Omit<SessionOptions, "servers">) => Promise<TestSession>;
  readonly closeAll: () => Promise<void>;
};

export function sessionsOf(space: Pick<TestSpace, "url" | "mint" | "spaces">): Sessions {
  const all: Session[] = [];
  const start = async (options: Omit<SessionOptions, "servers">): Promise<TestSession> => {
    const told: SessionEvent[] = [];
    const session = await connect({
      servers: [space.url],
      reconnect: { kind: "endless", baseMs: 50, capMs: 250 },
      ...options,
      onEvent: (event) => {
        told.push(event);
        options.onEvent?.(event);
      },
    });
    all.push(session);
    return Object.assign(session, { told });
  };
  return {
    open: (actor, more = {}) =>
      start({ space: space.spaces[0] ?? "main", credentials: { kind: "open", actor }, ...more }),
    minted: async (mint, more = {}) => {
      const { text } = await space.mint(mint);
      return start({ credentials: { kind: "static", text }, ...more });
    },
    own: start,
    closeAll: async () => {
      await Promise.all(all.map((session) => session.close()));
    },
  };
}

/** Reads and acknowledges so many items, then leaves the inbox; the test's deadline bounds it. */
export async function take(session: Session, count: number): Promise<InboxItem[]> {
  const items: InboxItem[] = [];
  const inbox = session.inbox();
  while (items.length < count) {
    const next = await inbox.next();
    if (next.done === true) throw new Error(`the inbox ended after ${items.length} items`);
    next.value.ack();
    items.push(next.value);
  }
  await inbox.return?.();
  return items;
}

export const texts = (items: readonly InboxItem[]): string[] => items.map((item) => item.text);
