/** What a test sees of the authority plane of a cluster: what its processes say, and the row of its claim. */
import { expect } from "vitest";
import { PlaneRow, actorKey } from "../../shared/protocol/ledger/actor-rows.ts";
import type { AuthService } from "./auth-service.ts";
import { eventually } from "./cli.ts";
import type { UserCluster } from "./user-cluster.ts";

export const HOLDS = "this process holds the authority plane";
export const UNTOLD = "alive can't be told";

/** How often it has said so. */
export const said = (auth: AuthService, words: string) => (): number => auth.log().split(words).length - 1;

/** Waits until it is more. */
export async function more(count: () => number, than: number, ms = 120_000): Promise<void> {
  expect(await eventually(count, (now) => now > than, ms)).toBeGreaterThan(than);
}

/** A read waits for a leader that the servers elect. */
export async function planeRow({ ledger }: Pick<UserCluster, "ledger">): Promise<PlaneRow> {
  const found = await eventually(
    () => ledger.read("auth", actorKey.plane).catch(() => undefined),
    (row) => row?.kind === "value",
    120_000,
  );
  return PlaneRow.parse(found?.kind === "value" ? found.value : undefined);
}
