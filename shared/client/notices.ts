/**
 * Tells a notice of the delivery daemon from a direct message that looks like one (§8.1).
 *
 * Invariants
 * 1. A notice comes from the principal that the space's settings name as the delivery daemon, whatever process
 *    that is: one that was restarted sends what an earlier run left owed.
 * 2. Where the settings can't be read it is an ordinary message: shown, and believed by nobody.
 * 3. No other message waits for this.
 */
import { AnycastNotice } from "../protocol/chat/anycast.ts";
import type { InboxItem, Notice } from "./item.ts";

/** Reads who is which daemon; left out where there is none. */
type Daemons = () => Promise<Readonly<Record<string, string>>>;

export type NoticeSorter = { readonly sort: (item: InboxItem, deliver: (item: InboxItem) => void) => void };

const DAEMON = "delivery";

export function createNoticeSorter(daemons: Daemons | undefined): NoticeSorter {
  let known: Promise<string | undefined> | undefined;
  const daemon = (read: Daemons): Promise<string | undefined> =>
    (known ??= read().then(
      (all) => all[DAEMON],
      () => {
        // Asked again for the next one.
        known = undefined;
        return undefined;
      },
    ));
  return {
    sort: (item, deliver) => {
      const notice = item.kind === "dm" ? noticeIn(item) : undefined;
      if (notice === undefined || daemons === undefined) return deliver(item);
      void daemon(daemons).then((id) =>
        deliver(item.from.id === id ? Object.assign(item, { kind: "dm", notice } as const) : item),
      );
    },
  };
}

/** Only the daemon's own name is looked at closer: what others write costs no question. */
function noticeIn({ from, parts }: InboxItem): Notice | undefined {
  if (!from.id.endsWith(`.${DAEMON}`)) return undefined;
  for (const part of parts) {
    const notice = part.kind === "data" && "data" in part ? AnycastNotice.safeParse(part.data).data : undefined;
    if (notice !== undefined) return notice.cotalAnycastNotice;
  }
  return undefined;
}
