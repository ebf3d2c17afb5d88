/** A space of one broker is restored onto a cluster of three: everything is there, three times, and it is served. */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { connect } from "../../shared/client/index.ts";
import { spaceNames } from "../../shared/protocol/base/names.ts";
import { type TestCluster, startCluster } from "../support/broker-cluster.ts";
import { type Ran, cli, eventually } from "../support/cli.ts";
import { startDaemon } from "../support/cluster-world.ts";
import { api, dump } from "../support/raw-jetstream.ts";
import { sessionsOf } from "../support/sessions.ts";
import { startSpace } from "../support/space.ts";
import { lookInto } from "../support/store-looker.ts";

const POSTS = 40;
const folder = mkdtempSync(join(tmpdir(), "cotal-backup-"));
const backup = join(folder, "backup");
const ALL = { subscribe: [">"], publish: [">"], space: "lab" };

let cluster: TestCluster;
const daemons: ReturnType<typeof startDaemon>[] = [];
beforeAll(async () => {
  cluster = await startCluster(3);
}, 120_000);
afterAll(async () => {
  await Promise.all(daemons.map(({ end }) => end()));
  await cluster?.stop();
  rmSync(folder, { recursive: true, force: true });
});

function done({ code, out, err }: Ran): void {
  if (code !== 0) throw new Error(`ended with ${code}: ${out} ${err}`);
}

test("A.06 A.07 a backup of one broker is restored onto three: each message is there three times, and shown to whom it is owed", async () => {
  const before = await leave();
  const servers = cluster.brokers.map(({ url }) => url);
  const where = ["--state", cluster.state, "--server", servers[0] ?? "", "--space", "lab"];
  // They take it up once it is proved.
  daemons.push(startDaemon(cluster, servers, "provisioner"), startDaemon(cluster, servers, "delivery"));
  await Promise.all(daemons.map(({ ready }) => ready));
  done(await cli(["restore", backup, ...where, "--replicas", "3", "--json"]));
  const looking = await lookInto(cluster.state, servers[0] ?? "", "lab");
  for (const [stream, messages] of before) {
    const { config } = (await api(looking.nc, `STREAM.INFO.${stream}`)) as { config: { num_replicas: number } };
    expect(config.num_replicas).toBe(3);
    expect((await dump(looking.nc, stream)).map(({ data }) => data)).toEqual(messages);
  }
  await looking.close();
  // Who was away comes back under a new credential, and is shown what it missed.
  const file = join(folder, "away.creds");
  const lists = ["--owner", "acme", "--actor", "away", "--subscribe", ">", "--out", file];
  await eventually(
    () => cli(["mint", ...where, ...lists]),
    ({ code }) => code === 0,
    60_000,
  );
  const session = await connect({
    servers: [...servers],
    credentials: { kind: "static", text: readFileSync(file, "utf8") },
  });
  expect(await session.history("news", { fromSeq: 1 })).toHaveLength(POSTS);
  await session.close();
  done(await cli(["doctor", ...where]));
}, 300_000);

/** Fills a space of one broker, takes its backup and ends it. What its streams held. */
async function leave(): Promise<ReadonlyMap<string, readonly string[]>> {
  const space = await startSpace({ spaces: ["lab"] });
  try {
    const sessions = sessionsOf(space);
    const [speaker, away] = [
      await sessions.minted({ actor: "speaker", ...ALL }),
      await sessions.minted({ actor: "away", ...ALL }),
    ];
    for (let n = 0; n < POSTS; n += 1) await speaker.send("news", `post ${n}`);
    await speaker.dm(away.me.id, "for you");
    done(await cli(["backup", "lab", backup, "--state", space.state, "--server", space.url, "--json"]));
    const store = await space.store("lab");
    const { chat, dm } = spaceNames("lab");
    const held = async (stream: string) => [stream, (await dump(store, stream)).map(({ data }) => data)] as const;
    const map = new Map([await held(chat), await held(dm)]);
    await sessions.closeAll();
    return map;
  } finally {
    await space.stop();
  }
}
