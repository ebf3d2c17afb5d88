/** The plane of a test's space in this very process, without an edge. */
import { join } from "node:path";
import { type OpenSpace, type OpenSpaceOptions, openSpace } from "../../services/auth/open-space.ts";
import { ownUsers } from "../../shared/broker/own-credential.ts";
import { eventually } from "./cli.ts";
import { EVERYTHING } from "./plane-parts.ts";
import type { TestSpace } from "./space.ts";

const nothing = (): void => undefined;

/** Opens it, whether or not it comes to hold the claim. */
export function beginPlane(space: TestSpace, over: Partial<OpenSpaceOptions> = {}): Promise<OpenSpace> {
  return openSpace({
    space: "main",
    signal: new AbortController().signal,
    onStatus: nothing,
    waiting: nothing,
    servers: [space.url],
    keysPattern: join(space.state, "spaces", "{space}", "auth"),
    users: ownUsers(),
    roles: { edge: false, plane: true },
    plane: { policy: "auto", defaults: EVERYTHING, actorsPerOwner: 10 },
    chat: { slotsPerOwner: 8, onSweep: nothing },
    evidence: { onPrune: nothing, onFence: nothing },
    edge: {} as OpenSpaceOptions["edge"],
    concurrency: 8,
    perCaller: 8,
    onServed: nothing,
    onUpgraded: nothing,
    onPassedOver: nothing,
    onPlane: nothing,
    onResume: nothing,
    ...over,
  });
}

/** Opens it, and waits until it holds the claim. */
export async function openPlane(space: TestSpace, over: Partial<OpenSpaceOptions> = {}): Promise<OpenSpace> {
  const opened = await beginPlane(space, over);
  const held = await eventually(
    () => opened.holdsPlane(),
    (holds) => holds,
    10_000,
  );
  if (held) return opened;
  await opened.close();
  throw new Error("the plane was never held");
}
