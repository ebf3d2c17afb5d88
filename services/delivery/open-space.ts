/**
 * Taking a space up, and giving it back: every connection that ends with it is dialled here, and closed here.
 *
 * Invariants
 * 1. Whatever was opened is given back, also when a later step fails.
 * 2. What runs over a connection has stopped before that connection is drained.
 */
import { type Connection, openConnection } from "../../shared/broker/connect.ts";
import { openUnguarded } from "./open-broker.ts";
import { openGuarded } from "./open-guarded.ts";
import { type Dial, type OpenSpace, type OpenSpaceOptions, type Running, dialOptions } from "./open-options.ts";

/** Takes one space up. Throws a `CotalError`; nothing stays open then. */
export async function openSpace(options: OpenSpaceOptions): Promise<OpenSpace> {
  const opened: Connection[] = [];
  const alone = dialOver(options);
  const dial: Dial = async (...asked) => {
    const connection = await alone(...asked);
    opened.push(connection);
    return connection;
  };
  const running: Running = [];
  const close = async (): Promise<void> => {
    await Promise.all(running.splice(0).map((stop) => stop()));
    await Promise.all(opened.splice(0).map((connection) => connection.drain()));
  };
  try {
    if (options.mode === "open") {
      const served = await openUnguarded(options, dial);
      return { ...served, broken: Promise.race(opened.map(({ closed }) => closed)), close };
    }
    const { lost, ...served } = await openGuarded(options, { dial, alone }, running);
    return { ...served, broken: Promise.race([lost, ...opened.map(({ closed }) => closed)]), close };
  } catch (error) {
    await close();
    throw error;
  }
}

function dialOver(options: OpenSpaceOptions): Dial {
  return async (name, { authenticator, inboxPrefix }, also) => {
    const as = authenticator === undefined ? { inboxPrefix } : { authenticator, inboxPrefix };
    const dialed = dialOptions(options, name);
    const connection = await openConnection({
      ...dialed,
      onStatus: (status) => {
        dialed.onStatus?.(status);
        also?.(status);
      },
      ...as,
    });
    options.onStatus(name, { type: "up", server: "", version: connection.version });
    return connection;
  };
}
