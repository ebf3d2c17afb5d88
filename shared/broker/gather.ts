/**
 * A question that every server of the broker may answer, and its answers.
 *
 * It ends as soon as what came is enough, or when its time is over: what came by then. Who judges says what
 * is missing; nothing here does.
 */
import { randomBytes } from "node:crypto";
import type { Msg } from "@nats-io/transport-node";
import type { Connection } from "./connect.ts";
import { type ConnectionsPage, pageOf } from "./connection-pages.ts";
import { sys } from "../protocol/base/broker-subjects.ts";
import { drawNonce } from "../protocol/base/principals.ts";

export type Answered = Pick<Msg, "json">;

export type Gather = (
  subject: string,
  body: string,
  isEnough: (answers: readonly Answered[]) => boolean,
) => Promise<readonly Answered[]>;

const ANSWER_MS = 2000;

/** What `read` makes of an answer; `undefined` for none, and for one of another shape. */
export function readAnswer<T>(answer: Answered | undefined, read: (answer: Answered) => T): T | undefined {
  try {
    return answer === undefined ? undefined : read(answer);
  } catch {
    return undefined;
  }
}

export function gatherOver({ nc, inboxPrefix }: Pick<Connection, "nc" | "inboxPrefix">): Gather {
  return (subject, body, isEnough) =>
    new Promise((resolve) => {
      const answers: Answered[] = [];
      const reply = `${inboxPrefix}.${drawNonce(randomBytes)}`;
      const end = (): void => {
        clearTimeout(timer);
        subscription?.unsubscribe();
        resolve(answers);
      };
      const timer = setTimeout(end, ANSWER_MS);
      let subscription: ReturnType<typeof nc.subscribe> | undefined;
      try {
        subscription = nc.subscribe(reply, {
          callback: (error, message) => {
            // Refused, or nobody there: nothing will come.
            if (error !== null || message.headers?.hasError === true) return end();
            answers.push(message);
            if (isEnough(answers)) end();
          },
        });
        nc.publish(subject, body, { reply });
      } catch {
        // The connection is closed.
        end();
      }
    });
}

/** One page of an account's connections, of one server; `undefined` if it does not answer, or not readably. */
export async function pageFrom(
  gather: Gather,
  account: string,
  serverId: string,
  question: string,
): Promise<ConnectionsPage | undefined> {
  let found: ConnectionsPage | undefined;
  await gather(sys.accountConnections(account), question, (sofar) => {
    const page = readAnswer(sofar.at(-1), pageOf);
    if (page?.server.id === serverId) found = page;
    return found !== undefined;
  });
  return found;
}
