/** Durable memberships of whoever asks (§7) that stand: none that was left. */
import { DurableListAnswer, type Membership } from "../shared/protocol/endpoint/delivery-shapes.ts";

/** `ask` calls `durable-list` with these arguments. */
export async function* standingMemberships(
  ask: (args: { readonly cursor?: number }) => Promise<unknown>,
): AsyncGenerator<Membership, void, undefined> {
  let cursor: number | undefined;
  do {
    const page = DurableListAnswer.parse(await ask(cursor === undefined ? {} : { cursor }));
    for (const membership of page.memberships) if (membership.state !== "left") yield membership;
    ({ cursor } = page);
  } while (cursor !== undefined);
}
