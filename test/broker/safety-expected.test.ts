/**
 * The profiles against what was written by hand (`expected/`): the live credential holds exactly what
 * its expectation lists, the broker accepts all of that, and refuses what must not be.
 *
 * The matrix is imported nowhere here; only the credentials that the running space hands out.
 */
import { decode } from "@nats-io/jwt";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Credential } from "../../shared/trust/creds.ts";
import { daemonCredential, freshHolder, personOf } from "../support/holders.ts";
import { type Probe, createProber } from "../support/probe.ts";
import { echoHead, putHead } from "../support/heads.ts";
import { type TestSpace, startSpace } from "../support/space.ts";
import { admin } from "./expected/admin.ts";
import { CAPABILITIES, SCOPE, agent } from "./expected/agent.ts";
import { authCallout } from "./expected/auth-callout.ts";
import { authLedger } from "./expected/auth-ledger.ts";
import { ledgerScanner } from "./expected/ledger-scanner.ts";
import { authEdge, authServer } from "./expected/auth-server.ts";
import { channelWriter } from "./expected/channel-writer.ts";
import { connectionEvictor, delivery, deliveryReader, membershipObserver, membershipRw } from "./expected/delivery.ts";
import { deprovisioner } from "./expected/deprovisioner.ts";
import { type Expected, type Line, type Person, type Who } from "./expected/kit.ts";
import { ledger } from "./expected/ledger.ts";
import { observer } from "./expected/observer.ts";
import { operator } from "./expected/operator.ts";
import { daemonEntrant, registrar } from "./expected/registrar.ts";
import { probe } from "./expected/probe.ts";
import { provisioner, provisionerDesk } from "./expected/provisioner.ts";
import { SERVED, service } from "./expected/service.ts";
import { backupReader, spaceRestorer } from "./expected/keepers.ts";
import { storeUpgrader } from "./expected/store-upgrader.ts";
import { systemAdministrator } from "./expected/system-administrator.ts";
import {
  channelPurger,
  deployer,
  dmReader,
  historyPurger,
  managerCaller,
  purger,
  sessionCaller,
  transferWriter,
} from "./expected/views.ts";

const SPACE = "main";
const EPOCH = 7;

let space: TestSpace;
let sibling: Person;
let stranger: Person;
let target: Person;

beforeAll(async () => {
  // Daemons of this test live in a space of their own, so that no live one is disturbed.
  space = await startSpace({ spaces: [SPACE, "lab"] });
  sibling = personOf(await space.mint({ actor: "sibling", subscribe: ["general"] }));
  stranger = personOf(await space.mint({ actor: "stranger", owner: "others", subscribe: ["general"] }));
  target = personOf(await space.mint({ actor: "target", space: "lab", subscribe: ["general"] }));
}, 60_000);

afterAll(() => space.stop());

const who = (credential: Credential, at: string): Who => ({
  ...personOf(credential),
  space: at,
  elsewhere: at === SPACE ? "lab" : SPACE,
  sibling,
  stranger,
  epoch: EPOCH,
});

type Side = { readonly allow?: string[]; readonly deny?: string[] };
type Grants = { readonly pub?: Side; readonly sub?: Side };

const written = (line: Line): string =>
  line.op === "sub" && line.queue !== undefined ? `${line.subject} ${line.queue}` : line.subject;
const of = (lines: readonly Line[], op: "pub" | "sub"): string[] =>
  lines
    .filter((line) => line.op === op)
    .map(written)
    .toSorted();

/** A subject that the grant covers, with a lawful token for each wildcard. */
function concrete(subject: string): string {
  return subject
    .split(".")
    .map((token) => (token === "*" ? "n".repeat(26) : token === ">" ? "1.1.1.0.0" : token))
    .join(".");
}

const accepted = (line: Line): Probe => (line.op === "pub" ? { op: "pub", subject: concrete(line.subject) } : line);

/** The whole comparison of one credential. */
async function expectHeld(credential: Credential, expected: Expected): Promise<void> {
  const grants = decode<Grants>(credential.jwt).nats;
  expect(grants.pub?.allow?.toSorted() ?? []).toEqual(of(expected.must, "pub"));
  expect(grants.sub?.allow?.toSorted() ?? []).toEqual(of(expected.must, "sub"));
  expect(grants.sub?.deny?.toSorted() ?? []).toEqual([...expected.deny].toSorted());
  expect(grants.pub?.deny ?? []).toEqual([]);
  const prober = createProber(await space.connect(credential));
  expect(await prober.refused(expected.must.map(accepted))).toEqual([]);
  const refused = await prober.refused(expected.mustNot);
  expect(expected.mustNot.filter((line) => !refused.includes(line))).toEqual([]);
  expect(refused.length).toBeGreaterThan(10);
}

describe("clients of front", () => {
  test("W9.05 W9.06 W9.15 W9.16 W9.17 W3.07 W2.07 PD.06 W132.08 W132.11 W10.05 PF.01 agent", async () => {
    await putHead(space, echoHead);
    const { subscribe, publish, role } = SCOPE;
    const credential = await space.mint({ actor: "alice", subscribe, publish, role, capabilities: CAPABILITIES });
    await expectHeld(credential, only(agent(who(credential, SPACE))));
  });

  test("W9.14 W9.15 W132.07 PD.06 PF.01 service, minted for one registered instance", async () => {
    const scope = { ...freshHolder(`u_${"d".repeat(26)}`, "svc"), space: "lab", epoch: EPOCH };
    const credential = await daemonCredential(space, "service", "front", {
      ...scope,
      ...SERVED,
      instanceId: scope.holder.uid,
    });
    await expectHeld(credential, only(service(who(credential, "lab"))));
  });

  const expectMinted = async (
    profile: "observer" | "admin" | "channel-writer" | "probe",
    expected: (one: Who) => Expected[],
  ) => {
    const credential = await space.mint({ actor: `a_${profile.replace("-", "_")}`, profile });
    await expectHeld(credential, only(expected(who(credential, SPACE))));
  };

  test("W9.07 W9.06 W9.14 W9.15 W9.16 PF.01 observer", async () => {
    await expectMinted("observer", observer);
  });

  test("W9.08 W9.06 W9.14 W9.15 W9.16 PF.01 admin", async () => {
    await expectMinted("admin", admin);
  });

  test("W9.14 W9.15 PF.01 channel-writer", async () => {
    await expectMinted("channel-writer", channelWriter);
  });

  test("W9.14 W9.15 PF.01 probe", async () => {
    await expectMinted("probe", probe);
  });

  test("W9.14 W9.15 PF.01 operator", async () => {
    const credential = space.operator(SPACE);
    await expectHeld(credential, only(operator(who(credential, SPACE))));
  });
});

describe("views, minted by the callout alone; here by the space's own key", () => {
  const scope = (actor: string) => ({ ...freshHolder(`u_${"v".repeat(26)}`, actor), space: "lab" });
  const named = { manager: "m".repeat(26), other: "o".repeat(26) };
  const hex = "ab".repeat(32);
  // "sha256:" and the digest, in base64url, as the stock object store spells a name.
  const name = "c2hhMjU2OmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWI=";

  test.each([
    ["channel-purger", channelPurger],
    ["purger", purger],
    ["deployer", deployer],
    ["dm-reader", dmReader],
  ] as const)("W9.11 W9.14 W9.15 W10.10 PF.01 %s", async (profile, expected) => {
    const credential = await daemonCredential(space, profile, "front", scope(profile.replace("-", "_")));
    await expectHeld(credential, only(expected(who(credential, "lab"))));
  });

  test.each([true, false])("W9.12 W9.14 W9.15 W10.11 PF.01 manager-caller, with spawn: %s", async (spawns) => {
    const credential = await daemonCredential(space, "manager-caller", "front", {
      ...scope("caller"),
      managerInstanceId: named.manager,
      capabilities: spawns ? ["admin", "spawn"] : ["admin"],
    });
    await expectHeld(credential, only(managerCaller(who(credential, "lab"), named, spawns)));
  });

  test("W9.14 W9.15 W10.16 PF.01 session-caller", async () => {
    const session = { endpoint: "manager", sessionId: "s".repeat(26), epoch: 3 };
    const credential = await daemonCredential(space, "session-caller", "front", { ...scope("caller"), session });
    await expectHeld(credential, only(sessionCaller(who(credential, "lab"), { id: session.sessionId, epoch: 3 })));
  });

  test("W9.09 W9.14 W9.15 W10.18 PF.01 transfer-writer", async () => {
    const transferWriterClaim = { instanceId: named.manager, hex };
    const credential = await daemonCredential(space, "transfer-writer", "front", {
      ...scope("sender"),
      transferWriter: transferWriterClaim,
    });
    await expectHeld(credential, only(transferWriter(who(credential, "lab"), { ...named, hex, name })));
  });
});

describe("daemons, each with one function", () => {
  const OWNER = `u_${"d".repeat(26)}`;

  test("W9.14 W132.07 PD.06 PA.07 PF.01 provisioner, in front and in the store", async () => {
    const scope = { ...freshHolder(OWNER, "provisioner"), space: "lab", epoch: EPOCH };
    for (const account of ["front", "store"] as const) {
      const credential = await daemonCredential(space, "provisioner", account, {
        ...scope,
        instanceId: scope.holder.uid,
      });
      const expected = provisioner(who(credential, "lab")).find((one) => one.account === account);
      await expectHeld(credential, expected ?? only([]));
    }
    const desk = { ...freshHolder(OWNER, "provisioner"), space: "lab", epoch: EPOCH };
    const second = await daemonCredential(space, "provisioner-desk", "front", { ...desk, instanceId: desk.holder.uid });
    await expectHeld(second, only(provisionerDesk(who(second, "lab"))));
  });

  test("W9.14 W132.07 PD.06 W61.10 PF.01 delivery in front and in the store, and its evictor in the system account", async () => {
    const scope = { ...freshHolder(OWNER, "delivery"), space: "lab", epoch: EPOCH };
    for (const account of ["front", "store"] as const) {
      const serving = await daemonCredential(space, "delivery", account, { ...scope, instanceId: scope.holder.uid });
      const expected = delivery(who(serving, "lab")).find((one) => one.account === account);
      await expectHeld(serving, expected ?? only([]));
    }
    const spaceAccounts = ["F", "S", "A"].map((letter) => `A${letter.repeat(55)}`);
    const evictor = await daemonCredential(space, "connection-evictor", "system", { ...scope, spaceAccounts });
    await expectHeld(evictor, only(connectionEvictor(who(evictor, "lab"), spaceAccounts)));
  });

  test("W9.14 PD.07 the delivery service's reads: heard in front, made in the store, and nothing written", async () => {
    const scope = { ...freshHolder(OWNER, "delivery"), space: "lab", epoch: EPOCH };
    for (const account of ["front", "store"] as const) {
      const serving = { ...scope, instanceId: scope.holder.uid };
      const credential = await daemonCredential(space, "delivery-reader", account, serving);
      const expected = deliveryReader(who(credential, "lab")).find((one) => one.account === account);
      await expectHeld(credential, expected ?? only([]));
    }
  });

  test("W9.14 PF.05 W8.19 the membership feed's two: one sees the front of its space, one writes the feed", async () => {
    const scope = { ...freshHolder(OWNER, "delivery"), space: "lab" };
    const frontAccount = `A${"F".repeat(55)}`;
    const observer = await daemonCredential(space, "membership-observer", "system", { ...scope, frontAccount });
    await expectHeld(observer, only(membershipObserver(who(observer, "lab"), frontAccount)));
    const writer = await daemonCredential(space, "membership-rw", "store", scope);
    await expectHeld(writer, only(membershipRw(who(writer, "lab"))));
  });

  test("W9.14 PF.01 ledger", async () => {
    const credential = await daemonCredential(space, "ledger", "store", {
      ...freshHolder(OWNER, "ledger"),
      space: "lab",
    });
    await expectHeld(credential, only(ledger(who(credential, "lab"))));
  });

  test("W9.14 W10.03 W132.07 PD.06 PF.01 auth-callout, auth-ledger, auth-server and auth-edge: one service, four credentials", async () => {
    const scope = { ...freshHolder(OWNER, "auth"), space: "lab" };
    const callout = await daemonCredential(space, "auth-callout", "auth", scope);
    await expectHeld(callout, only(authCallout(who(callout, "lab"))));
    const ledgerOwn = await daemonCredential(space, "auth-ledger", "store", scope);
    await expectHeld(ledgerOwn, only(authLedger(who(ledgerOwn, "lab"))));
    const served = { ...scope, instanceId: scope.holder.uid, epoch: EPOCH };
    const server = await daemonCredential(space, "auth-server", "front", served);
    await expectHeld(server, only(authServer(who(server, "lab"))));
    const edge = await daemonCredential(space, "auth-edge", "front", scope);
    await expectHeld(edge, only(authEdge(who(edge, "lab"))));
  });

  test.each(["ledger", "records"] as const)(
    "W9.14 PD.13 PF.01 ledger-scanner of %s: one literal consumer of one stream",
    async (scans) => {
      const scope = { ...freshHolder(OWNER, "auth_ledger"), space: "lab", scans };
      const credential = await daemonCredential(space, "ledger-scanner", "store", scope);
      await expectHeld(credential, only(ledgerScanner(who(credential, "lab"), scans)));
    },
  );

  test("W9.14 PF.01 deprovisioner", async () => {
    const { owner, actor, uid } = target;
    const scope = { ...freshHolder(OWNER, "cleaner"), space: "lab", target: { principal: { owner, actor }, uid } };
    const credential = await daemonCredential(space, "deprovisioner", "store", scope);
    await expectHeld(credential, only(deprovisioner(who(credential, "lab"), target)));
  });

  test("W9.14 PF.01 registrar", async () => {
    const scope = { ...freshHolder(OWNER, "provisioner"), space: "lab" };
    const credential = await daemonCredential(space, "registrar", "front", scope);
    await expectHeld(credential, only(registrar(who(credential, "lab"))));
  });

  test("W9.14 PF.01 daemon-entrant", async () => {
    const scope = { ...freshHolder(OWNER, "delivery"), space: "lab" };
    const credential = await daemonCredential(space, "daemon-entrant", "front", scope);
    await expectHeld(credential, only(daemonEntrant(who(credential, "lab"))));
  });

  test("W9.14 PF.01 history-purger", async () => {
    const scope = { ...freshHolder(OWNER, "provisioner"), space: "lab" };
    const credential = await daemonCredential(space, "history-purger", "store", scope);
    await expectHeld(credential, only(historyPurger(who(credential, "lab"))));
  });

  test("W9.14 PF.01 store-upgrader", async () => {
    const scope = { ...freshHolder(OWNER, "ledger"), space: "lab" };
    const credential = await daemonCredential(space, "store-upgrader", "store", scope);
    await expectHeld(credential, only(storeUpgrader(who(credential, "lab"))));
  });

  test("W9.14 PF.01 backup-reader", async () => {
    const scope = { ...freshHolder(OWNER, "backup"), space: "lab" };
    const credential = await daemonCredential(space, "backup-reader", "store", scope);
    await expectHeld(credential, only(backupReader(who(credential, "lab"))));
  });

  test("W9.14 PF.01 space-restorer", async () => {
    const scope = { ...freshHolder(OWNER, "restore"), space: "lab" };
    const credential = await daemonCredential(space, "space-restorer", "store", scope);
    await expectHeld(credential, only(spaceRestorer(who(credential, "lab"))));
  });

  test("W9.14 PF.01 system-administrator", async () => {
    const scope = { ...freshHolder(OWNER, "trust"), space: "broker" };
    const credential = await daemonCredential(space, "system-administrator", "system", scope);
    await expectHeld(credential, only(systemAdministrator(who(credential, "broker"))));
  });
});

function only(list: readonly Expected[]): Expected {
  const [one, ...more] = list;
  if (one === undefined || more.length > 0) throw new Error("one account was expected");
  return one;
}
