/** The broker keeps no cache of subjects (§13.2): each call's subjects come once, and its subscription has open tokens. */
import { connect } from "@nats-io/transport-node";
import { expect, test } from "vitest";
import { NO_SUBJECT_CACHE, serverConfigText } from "../../services/trust/server-config.ts";
import { freePort, startBroker } from "../support/nats-server.ts";

const PLACE = {
  host: "127.0.0.1",
  port: 4222,
  storeDir: "/s",
  resolverDir: "/r",
  pidFile: "/p",
  maxPayload: 1_048_576,
};

test.each([
  ["an open broker", PLACE],
  ["an authenticated one", { ...PLACE, trust: { operatorJwt: "o", systemAccount: "s", systemJwt: "j" } }],
])("%s is configured without it", (_what, config) => {
  expect(serverConfigText(config).split("\n")).toContain(NO_SUBJECT_CACHE);
});

test.each([
  ["without the line it keeps what was published", [], true],
  ["with it, nothing", [NO_SUBJECT_CACHE], false],
])("%s", async (_what, lines, keeps) => {
  const monitor = await freePort();
  const broker = await startBroker({ lines: [`http: "127.0.0.1:${monitor}"`, ...lines] });
  try {
    const nc = await connect({ servers: broker.url });
    nc.subscribe("a.>", { callback: () => undefined });
    for (let n = 0; n < 50; n += 1) nc.publish(`a.${n}`);
    await nc.flush();
    const subsz = (await (await fetch(`http://127.0.0.1:${monitor}/subsz`)).json()) as { readonly num_cache: number };
    expect(subsz.num_cache >= 50).toBe(keeps);
    expect(subsz.num_cache === 0).toBe(!keeps);
    await nc.close();
  } finally {
    await broker.stop();
  }
});
