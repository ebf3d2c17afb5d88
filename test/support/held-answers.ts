/**
 * A connection whose answers to requests on one subject can be held back: they have come, and nobody knows them yet.
 * Another one sends them late.
 */
import { setTimeout as sleep } from "node:timers/promises";
import type { NatsConnection } from "@nats-io/transport-node";

export type HeldAnswers = {
  readonly nc: NatsConnection;
  /** Resolves when an answer to a request that is made from now on has come, and is held. */
  readonly hold: () => Promise<void>;
  readonly release: () => void;
};

export function holdAnswers(nc: NatsConnection, subject: string): HeldAnswers {
  let isHolding = false;
  let came: () => void = () => undefined;
  let release: () => void = () => undefined;
  let released = Promise.resolve();
  const request: NatsConnection["request"] = async (asked, ...rest) => {
    const holds = isHolding && asked === subject;
    const answer = await nc.request(asked, ...rest);
    if (holds) {
      came();
      await released;
    }
    return answer;
  };
  return {
    nc: through(nc, request),
    hold: () => {
      isHolding = true;
      released = new Promise((resolve) => {
        release = resolve;
      });
      return new Promise((resolve) => {
        came = resolve;
      });
    },
    release: () => {
      isHolding = false;
      release();
    },
  };
}

/** Requests on this subject are sent so much later. */
export function delayed(nc: NatsConnection, subject: string, ms: number): NatsConnection {
  return through(nc, async (asked, ...rest) => {
    if (asked === subject) await sleep(ms);
    return nc.request(asked, ...rest);
  });
}

function through(nc: NatsConnection, request: NatsConnection["request"]): NatsConnection {
  return new Proxy(nc, {
    get: (target, name) => {
      if (name === "request") return request;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
}
