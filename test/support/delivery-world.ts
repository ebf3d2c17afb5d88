/** A space with its delivery service in hand, to hurt, and sessions of its members: what tests of stored delivery begin with. */
import { type DeliveryService, startDeliveryService } from "./delivery-service.ts";
import { type Sessions, sessionsOf } from "./sessions.ts";
import { type SpaceOptions, type TestSpace, startSpace } from "./space.ts";

export type DeliveryWorld = {
  readonly space: TestSpace;
  readonly delivery: DeliveryService;
  readonly sessions: Sessions;
  readonly stop: () => Promise<void>;
};

/** Resolves once the service is ready; what was begun is ended where it never is. */
export async function startDeliveryWorld(options: SpaceOptions = {}): Promise<DeliveryWorld> {
  const space = await startSpace(options);
  const delivery = startDeliveryService(space);
  const sessions = sessionsOf(space);
  const stop = async (): Promise<void> => {
    await sessions.closeAll();
    await delivery.kill("SIGTERM");
    await space.stop();
  };
  try {
    await delivery.ready();
  } catch (error) {
    await stop();
    throw error;
  }
  return { space, delivery, sessions, stop };
}
