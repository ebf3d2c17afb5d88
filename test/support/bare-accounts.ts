/**
 * A broker with bare accounts, made for the test of one broker fact: no part of the product is used,
 * so what is seen is the broker's own behaviour.
 */
import { connect, type ConnectionOptions, type NatsConnection } from "@nats-io/transport-node";
import { join } from "node:path";
import { type TestBroker, startBroker } from "./nats-server.ts";

export type Side = { readonly allow?: readonly string[]; readonly deny?: readonly string[] };
export type BarePermissions = {
  readonly publish?: Side;
  readonly subscribe?: Side;
  readonly allow_responses?: boolean;
};
export type BareAccount = {
  /** With JetStream or without. */
  readonly jetstream?: boolean;
  /** Users by name; the password is the name. */
  readonly users: Readonly<Record<string, BarePermissions>>;
};

export type BareBroker = TestBroker & {
  readonly login: (user: string, options?: ConnectionOptions) => Promise<NatsConnection>;
  readonly end: () => Promise<void>;
};

/** Starts a broker whose configuration file holds these accounts. */
export async function startBareBroker(
  accounts: Readonly<Record<string, BareAccount>>,
  options: { readonly jetstream?: object; readonly extra?: object } = {},
): Promise<BareBroker> {
  const broker = await startBroker({
    config: (port, folder) =>
      JSON.stringify({
        listen: `127.0.0.1:${port}`,
        max_control_line: 65_536,
        jetstream: { store_dir: join(folder, "store"), ...options.jetstream },
        accounts: Object.fromEntries(Object.entries(accounts).map(([name, account]) => [name, accountText(account)])),
        ...options.extra,
      }),
  });
  const open: NatsConnection[] = [];
  return {
    ...broker,
    login: async (user, more = {}) => {
      const nc = await connect({ servers: broker.url, user, pass: user, timeout: 3000, reconnect: false, ...more });
      open.push(nc);
      return nc;
    },
    end: async () => {
      await Promise.all(open.map((nc) => nc.close()));
      await broker.stop();
    },
  };
}

function accountText({ jetstream = false, users }: BareAccount): object {
  return {
    ...(jetstream ? { jetstream: "enabled" } : {}),
    users: Object.entries(users).map(([user, permissions]) => ({ user, password: user, permissions })),
  };
}
