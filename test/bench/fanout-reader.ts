/**
 * A member that comes back to what waits for it, as a process of its own: through the SDK, or with nats.js alone
 * under the same credential. Ends with its parent.
 */
import { connect as dial, credsAuthenticator } from "@nats-io/transport-node";
import { DEFAULT_LIMITS, connect } from "../../shared/client/index.ts";
import { inboxPrefix } from "../../shared/protocol/base/broker-subjects.ts";
import { dlvDurable, spaceNames } from "../../shared/protocol/base/names.ts";
import { parseCreds } from "../../shared/trust/creds.ts";
import { answerParent } from "./child.ts";
import { type SideName, complete, pause, perSecond } from "./jobs.ts";
import { drainByPulls } from "./pulls.ts";

export type Return = {
  readonly side: SideName;
  readonly url: string;
  readonly space: string;
  readonly creds: string;
  readonly channel: string;
  /** So many copies wait. */
  readonly count: number;
};

/** Copies a second, from its first pull to the last acknowledgement. */
const SIDES: Readonly<Record<SideName, (order: Return) => Promise<number>>> = {
  ours: async ({ url, creds, channel, count }) => {
    const session = await connect({
      servers: [url],
      credentials: { kind: "static", text: creds },
      presence: false,
    });
    const { class: kind, shortfall } = await session.join(channel, { replay: false });
    if (kind !== "durable" || shortfall !== undefined) throw new Error(`joined ${kind}: ${shortfall ?? ""}`);
    const began = performance.now();
    let rate = 0;
    let taken = 0;
    for await (const item of session.inbox({ dm: false, role: false })) {
      taken += 1;
      if (taken < count) continue;
      item.ack();
      rate = perSecond(count, began);
      break;
    }
    complete("catch-up", session.stats().acked, count);
    await session.drain();
    // Its last pulls may outlive it by their expiry, and would take what is stored next.
    await pause(DEFAULT_LIMITS.pullExpiresMs + 100);
    return rate;
  },
  bare: async ({ url, space, creds, count }) => {
    const { view } = parseCreds(creds);
    const prefix = inboxPrefix(view.uid, view.inboxNonce);
    const authenticator = credsAuthenticator(new TextEncoder().encode(creds));
    const nc = await dial({ servers: url, authenticator, inboxPrefix: prefix });
    const rate = await drainByPulls(nc, {
      stream: spaceNames(space).dlv,
      durable: dlvDurable(view.principal, view.uid),
      reply: `${prefix}.bench`,
      count,
      pulls: DEFAULT_LIMITS.pulls,
    });
    await nc.close();
    return rate;
  },
};

answerParent((order: Return): Promise<unknown> => SIDES[order.side](order));
