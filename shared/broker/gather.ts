/**
 * A question that every server of the broker may answer, and its answers.
 *
 * It ends as soon as what came is enough, or when its time is over: what came by then. Who judges says what
 * is missing; nothing here does.
 */
import { randomBytes } from "node:crypto";
import type { Msg } from "@nats-io/transport-node";
import type { Connection } from "./connect.ts";
import { drawNonce } from "../protocol/base/principals.ts";

export type Answered = Pick<Msg, "json">;

export type Gather = (
  subject: string,
  body: string,
  isEnough: (answers: readonly Answered[]) => boolean,
) => Promise<readonly Answered[]>;

const ANSWER_MS = 2000;

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
