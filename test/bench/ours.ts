/** The jobs through the SDK, as any user would write them. */
import { DEFAULT_LIMITS, type Inbox, connect } from "../../shared/client/index.ts";
import { type Jobs, type Setup, complete, pause, perSecond, pipelined, sinceStamp, stamp } from "./jobs.ts";

export async function ours(setup: Setup): Promise<Jobs> {
  const { url, channel, textBytes } = setup;
  const open = () => connect({ servers: [url], credentials: { kind: "static", text: setup.creds }, presence: false });
  const session = await open();
  await session.join(channel, { replay: false });
  let live: Inbox | undefined;
  return {
    pace: async ({ count, pauseMs }) => {
      for (let sent = 0; sent < count; sent += 1) {
        await session.send(channel, stamp().padEnd(textBytes, "."));
        if (pauseMs > 0) await pause(pauseMs);
      }
    },
    receive: async ({ count }) => {
      live ??= session.inbox({ dm: false, role: false });
      const taken: number[] = [];
      while (taken.length < count) {
        const { value } = await live.next();
        if (value === undefined) throw new Error("the inbox ended");
        taken.push(sinceStamp(value.text));
      }
      return taken;
    },
    flood: async ({ count, inFlight }) => {
      const text = ".".repeat(textBytes);
      const began = performance.now();
      await pipelined(count, inFlight, () => session.send(setup.quietChannel, text));
      return perSecond(count, began);
    },
    drain: async ({ count }) => {
      // A session of its own: none pulls while the next round's messages are put there.
      const reader = await open();
      const began = performance.now();
      let taken = 0;
      let rate = 0;
      for await (const item of reader.inbox({ role: false })) {
        taken += 1;
        if (taken < count) continue;
        item.ack();
        rate = perSecond(count, began);
        break;
      }
      complete("inbox", reader.stats().acked, count);
      await reader.drain();
      // Its last pulls may outlive it by their expiry, and would take what is stored next.
      await pause(DEFAULT_LIMITS.pullExpiresMs + 100);
      return rate;
    },
    history: async ({ channel: read, count }) => {
      const began = performance.now();
      const items = await session.history(read, { fromSeq: 1 });
      complete("history", items.length, count);
      return perSecond(count, began);
    },
    roster: async ({ members }) => {
      const began = performance.now();
      const entries = await session.roster();
      complete("roster", entries.length, members);
      return performance.now() - began;
    },
    close: () => session.close(),
  };
}
