/** A broker of one test's own, to hurt: it ends with the test, however that ends. */
import { onTestFinished } from "vitest";
import { type TestBroker, startBroker } from "./nats-server.ts";

export async function ownBroker(...args: Parameters<typeof startBroker>): Promise<TestBroker> {
  const started = await startBroker(...args);
  onTestFinished(() => started.stop());
  return started;
}
