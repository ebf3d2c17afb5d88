/**
 * One connection that serves: opened with a serve credential, subscribed, and ended in good order.
 *
 * A credential lives for minutes and a connection can't change its own, so an instance serves through one
 * incarnation of this kind after another, each opened before the one before is drained (`host.ts`).
 *
 * Invariants
 * 1. The connection serves and says how it is, and asks nobody anything: its credential allows no more.
 * 2. `end` takes no new request, lets every running one answer, and only then closes.
 */
import { type ConnectOptions, type Connection, openConnection } from "../broker/connect.ts";
import { type StatusReport, statusSubject } from "../protocol/endpoint/status-rail.ts";
import { type ServeOptions, serveEndpoint } from "../serve/serve.ts";

export type IncarnationOptions = {
  readonly dial: Pick<ConnectOptions, "servers" | "tls" | "authenticator" | "inboxPrefix" | "name">;
  readonly serve: Omit<ServeOptions, "nc" | "heardOn">;
};

export type Incarnation = {
  readonly connection: Connection;
  /** Says how the instance is. Not waited for: nobody's call depends on it. */
  readonly report: (report: StatusReport) => void;
  readonly end: (farewell?: StatusReport) => Promise<void>;
};

export async function openIncarnation({ dial, serve }: IncarnationOptions): Promise<Incarnation> {
  const connection = await openConnection({ ...dial, reconnect: { kind: "endless", capMs: 5000 } });
  try {
    const served = await serveEndpoint({ ...serve, nc: connection.nc });
    const { space, endpoint, instanceId, epoch } = serve;
    const subject = statusSubject(space, { endpoint, instanceId, epoch });
    const report = (status: StatusReport): void => {
      if (!connection.nc.isClosed()) connection.nc.publish(subject, JSON.stringify(status));
    };
    return {
      connection,
      report,
      end: async (farewell) => {
        await served.stop();
        if (farewell !== undefined) report(farewell);
        await connection.drain();
      },
    };
  } catch (thrown) {
    await connection.close();
    throw thrown;
  }
}
