/**
 * Where people sign in, and nothing else: a broker, an exchange and a callout of one test's own.
 *
 * Such a test mostly waits, for the end of a bearer or a dial's turn; worlds that share nothing let many wait at once.
 */
import type { TestContext } from "vitest";
import { type CalloutBroker, startCalloutBroker } from "./callout-broker.ts";
import { type RunningResponder, startResponder } from "./callout-responder.ts";
import { type SmallExchange, startSmallExchange } from "./small-exchange.ts";

export type SignInWorld = {
  readonly broker: CalloutBroker;
  readonly exchange: SmallExchange;
  /** Answers the callout from now on: after a broker's restart, or after `away`. It does so from the start. */
  readonly respond: () => Promise<void>;
  /** Nobody answers the callout until `respond`. */
  readonly away: () => Promise<void>;
};

/** Ends with the test, after whatever the test itself registers later. */
export async function signInWorld({ onTestFinished }: Pick<TestContext, "onTestFinished">): Promise<SignInWorld> {
  const broker = await startCalloutBroker();
  onTestFinished(() => broker.end());
  const exchange = await startSmallExchange(broker.space("main"));
  onTestFinished(() => exchange.stop());
  let responder: RunningResponder | undefined;
  const respond = async (): Promise<void> => {
    const { by } = broker.space("main");
    responder = await startResponder(await broker.responder("main"), { by, answer: exchange.answer, forgetful: true });
  };
  await respond();
  return { broker, exchange, respond, away: async () => responder?.stop() };
}
