/**
 * The profile matrix as a whole: what holds for every row of every built profile, and for every holder
 * that is not trusted. What each row does at a broker is probed in test/broker/.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { EXAMPLE_HOLDERS } from "../../scripts/generate/example-holders.ts";
import type { AgentScope } from "../../shared/grants/client-profiles.ts";
import { DEPLOYER_COMMANDS, ReadCommand, OPERATOR_COMMANDS, ProvisionerCommand } from "../../shared/grants/commands.ts";
import { type BuiltProfile, Life, PROFILES, profileRows } from "../../shared/grants/matrix.ts";
import { permissionsOf } from "../../shared/grants/permissions.ts";
import { Account, type Row } from "../../shared/grants/row.ts";
import { dotForm } from "../../shared/protocol/base/principals.ts";
import { overlap } from "../../shared/protocol/base/channels.ts";
import { AuthzMode, RESERVED_COMMANDS } from "../../shared/protocol/endpoint/grammar.ts";
import { type MintRequest, mintUser } from "../../shared/trust/jwt.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { channels, lifecycleUids, principals, roles, spaces } from "../support/arbitraries.ts";

const BUILT = Object.keys(EXAMPLE_HOLDERS) as BuiltProfile[];
const UNTRUSTED = BUILT.filter((name) => !PROFILES[name].trusted);
const ACCOUNTS = Object.values(Account);

const rowsOf = (name: BuiltProfile): Row[] => profileRows(name, EXAMPLE_HOLDERS[name]);
const everyRow = BUILT.flatMap((name) => rowsOf(name).map((row) => ({ name, row })));
const untrustedRows = everyRow.filter(({ name }) => UNTRUSTED.includes(name));

/** Agents with any lists: one family, whole or by depth, so that no entry cuts another. */
const agents: fc.Arbitrary<AgentScope> = fc
  .record({
    space: spaces,
    principal: principals,
    uid: lifecycleUids,
    inboxNonce: fc.stringMatching(/^[A-Za-z0-9]{22,64}$/),
    allowSubscribe: fc.oneof(
      fc.array(channels, { maxLength: 4 }),
      fc.constantFrom(
        [">"],
        ["*"],
        ["team.*"],
        ["team.>"],
        ["a.*", "b.*.c"],
        ["team.*", "team.>"],
        ["a", "a.*", "b.>"],
      ),
    ),
    allowPublish: fc.array(channels, { maxLength: 3 }),
    role: fc.option(roles, { nil: undefined }),
    serves: fc.boolean(),
    commands: fc.array(
      fc.record(
        {
          endpoint: fc.constantFrom("com.example.echo", "com.example.job", "org.x"),
          command: fc.stringMatching(/^[a-z]{1,3}-[a-z0-9]{1,3}$/),
          modes: fc.subarray(Object.values(AuthzMode), { minLength: 1 }),
          scatter: fc.boolean(),
        },
        { requiredKeys: ["endpoint", "command", "scatter"] },
      ),
      { maxLength: 4 },
    ),
  })
  .map(({ principal, uid, role, ...rest }) => ({
    ...rest,
    holder: { principal, uid },
    ...(role === undefined ? {} : { role }),
  }));

describe("W9.03 W9.14 the matrix", () => {
  test("the profiles are those of §9 and supplement F", () => {
    expect(BUILT.toSorted()).toEqual(
      Object.entries(PROFILES)
        .filter(([, profile]) => profile.state === "built")
        .map(([name]) => name)
        .toSorted(),
    );
    const asked =
      "agent observer admin provisioner deprovisioner delivery membership-rw supervisor operator purger teardown channel-writer deployer probe dm-reader transfer-writer transfer-reader";
    expect(asked.split(" ").filter((name) => !(name in PROFILES))).toEqual([]);
  });

  test("no row is allow-all, and no subject begins with a wildcard", () => {
    expect(everyRow.filter(({ row }) => /^[>*]/.test(row.subject))).toEqual([]);
    expect(everyRow.filter(({ row }) => /^(cotal|\$KV|\$JS|\$SYS|_INBOX|\$O)(\.\*)?\.>$/.test(row.subject))).toEqual(
      [],
    );
    expect(everyRow.filter(({ row }) => row.subject === "cotal.main.>" || row.subject === "$JS.API.>")).toEqual([]);
  });

  test("every row says why, and holds in an account of its profile", () => {
    expect(everyRow.filter(({ row }) => row.why.trim() === "")).toEqual([]);
    const astray = everyRow.filter(
      ({ name, row }) => !(PROFILES[name].accounts as readonly Account[]).includes(row.account),
    );
    expect(astray).toEqual([]);
    const idle = BUILT.flatMap((name) =>
      PROFILES[name].accounts.filter((account) => !rowsOf(name).some((row) => row.account === account)),
    );
    expect(idle).toEqual([]);
  });

  test("a row is written once", () => {
    for (const name of BUILT) {
      const keys = rowsOf(name).map(
        (row) => `${row.account} ${row.op} ${row.subject} ${row.op === "sub" ? (row.queue ?? "") : ""}`,
      );
      expect(keys.filter((key, at) => keys.indexOf(key) !== at)).toEqual([]);
    }
  });

  test("a subject is one that the broker can hold: no empty token, no half wildcard, > last", () => {
    const bad = everyRow.filter(({ row }) => {
      const tokens = row.subject.split(".");
      return tokens.some(
        (token, at) =>
          token === "" || (/[*>\s]/.test(token) && token.length > 1) || (token === ">" && at !== tokens.length - 1),
      );
    });
    expect(bad).toEqual([]);
  });
});

describe("W9.05 PF.01 the paired denies (H16)", () => {
  const strip = (entry: string) => entry.split(" ")[0] ?? "";

  test.each(BUILT)("%s: every subscribe entry that ends in * has its deny beside it", (name) => {
    for (const account of ACCOUNTS) {
      const { sub } = permissionsOf(rowsOf(name), account);
      const open = sub.allow.map(strip).filter((entry) => /(^|\.)\*$/.test(entry));
      expect(open.filter((entry) => !sub.deny.includes(`${entry}.>`))).toEqual([]);
    }
  });

  test("the examples have such entries at all", () => {
    expect(everyRow.filter(({ row }) => row.op === "sub" && row.subject.endsWith(".*")).length).toBeGreaterThan(4);
  });

  test("for any agent: paired, and no deny takes an allowed entry away", () => {
    fc.assert(
      fc.property(agents, (scope) => {
        const { pub, sub } = permissionsOf(profileRows("agent", scope), Account.Front);
        expect(sub.allow.filter((entry) => entry.endsWith("*") && !sub.deny.includes(`${entry}.>`))).toEqual([]);
        expect(sub.deny.filter((entry) => !sub.allow.includes(entry.slice(0, -2)))).toEqual([]);
        expect(pub.deny).toEqual([]);
        expect([...pub.allow, ...sub.allow].filter((entry) => entry === ">" || entry === "*")).toEqual([]);
      }),
    );
  });
});

describe("W9.16 W9.17 W9.19 who is not trusted", () => {
  test("they are the clients, and nobody else", () => {
    expect(UNTRUSTED.toSorted()).toEqual([
      "admin",
      "agent",
      "channel-purger",
      "channel-writer",
      "deployer",
      "dm-reader",
      "manager-caller",
      "observer",
      "operator",
      "probe",
      "purger",
      "service",
      "session-caller",
      "transfer-writer",
    ]);
  });

  test("no row lies outside front", () => {
    expect(untrustedRows.filter(({ row }) => row.account !== "front")).toEqual([]);
  });

  test("W9.06 the only JetStream subjects are single pulls and acks of the holder's own durables", () => {
    const api = untrustedRows.filter(({ row }) => row.subject.startsWith("$JS."));
    const own = "u_aaaaaaaaaaaaaaaaaaaaaaaaaa-alice-alicealicealicealicealicea";
    expect(api.map(({ name, row }) => `${name} ${row.op} ${row.subject}`).toSorted()).toEqual(
      [
        `agent pub $JS.API.CONSUMER.MSG.NEXT.DM_main.dm_${own}`,
        `agent pub $JS.API.CONSUMER.MSG.NEXT.DLV_main.dlv_${own}`,
        "agent pub $JS.API.CONSUMER.MSG.NEXT.TASK_main.svc_reviewer",
        `agent pub $JS.ACK.DM_main.dm_${own}.>`,
        `agent pub $JS.ACK.DLV_main.dlv_${own}.>`,
        "agent pub $JS.ACK.TASK_main.svc_reviewer.>",
        `dm-reader pub $JS.API.CONSUMER.MSG.NEXT.DM_main.dm_${own}`,
        `dm-reader pub $JS.ACK.DM_main.dm_${own}.>`,
      ].toSorted(),
    );
  });

  test("W9.09 W10.18 the only objects are the chunks and the record of the one transcript that its writer names", () => {
    const objects = untrustedRows.filter(({ row }) => row.subject.startsWith("$O"));
    const bucket = "$O.cotal_xfer_main_managermanagermanagermanag";
    const hex = "ab".repeat(32);
    // base64url of "sha256:" and the digest, as the stock object store spells a name (ADR-20).
    const name = "c2hhMjU2OmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWI=";
    expect(objects.map(({ name: of, row }) => `${of} ${row.op} ${row.subject}`)).toEqual([
      `transfer-writer pub ${bucket}.C.${hex}`,
      `transfer-writer pub ${bucket}.M.${name}`,
    ]);
  });

  test("for any agent: no other JetStream subject, and none with a wildcard in its durable", () => {
    fc.assert(
      fc.property(agents, (scope) => {
        const { owner, actor } = scope.holder.principal;
        const me = `${owner}-${actor}-${scope.holder.uid}`;
        const durables = [`DM_${scope.space}.dm_${me}`, `DLV_${scope.space}.dlv_${me}`];
        if (scope.role !== undefined) durables.push(`TASK_${scope.space}.svc_${scope.role}`);
        const allowed = durables.flatMap((one) => [`$JS.API.CONSUMER.MSG.NEXT.${one}`, `$JS.ACK.${one}.>`]);
        const held = profileRows("agent", scope)
          .map(({ subject }) => subject)
          .filter((subject) => subject.startsWith("$"));
        const presence = `$KV.cotal_presence_${scope.space}`;
        expect(held.toSorted()).toEqual([...allowed, `${presence}.>`, `${presence}.${owner}.${actor}`].toSorted());
      }),
    );
  });

  test("W9.19 nothing of the broker's own can be published to, and the system account is out of reach", () => {
    const reach = untrustedRows.filter(({ row }) => /^(\$SYS|_R_|_GR_|\$NRG|\$SRV|_INBOX\.)/.test(row.subject));
    expect(reach).toEqual([]);
    const inboxes = untrustedRows.filter(({ row }) => row.op === "pub" && row.subject.startsWith("_INBOX"));
    expect(inboxes).toEqual([]);
  });

  test("W9.15 the inbox is the holder's own, with UID and nonce", () => {
    for (const name of BUILT) {
      const { holder, inboxNonce } = EXAMPLE_HOLDERS[name];
      const inboxes = rowsOf(name).filter(({ subject }) => subject.startsWith("_INBOX"));
      expect(inboxes.length).toBe(PROFILES[name].accounts.length);
      expect(new Set(inboxes.map(({ op, subject }) => `${op} ${subject}`))).toEqual(
        new Set([`sub _INBOX_${holder.uid}_${inboxNonce}.>`]),
      );
    }
  });

  test("W3.07 W2.07 every publish form of a sender carries the holder's own two tokens", () => {
    fc.assert(
      fc.property(agents, (scope) => {
        const { owner, actor } = scope.holder.principal;
        const me = `${owner}.${actor}`;
        const P = `cotal.${scope.space}`;
        const forms = [
          `${P}.chat.${me}.`,
          `${P}.inst.*.*.${me}`,
          `${P}.svc.*.${me}`,
          `${P}.live.manager.${me}`,
          `${P}.live.delivery.${me}`,
          `${P}.take.${scope.role ?? "-"}.${me}`,
        ];
        const published = profileRows("agent", scope).filter(
          ({ op, subject }) => op === "pub" && subject.startsWith(P),
        );
        const calls = published.filter(({ subject }) => subject.startsWith(`${P}.ep.`));
        const sends = published.filter(({ subject }) => !subject.startsWith(`${P}.ep.`));
        expect(calls.filter(({ subject }) => !subject.endsWith(`.${me}.${scope.holder.uid}.*`))).toEqual([]);
        expect(
          sends.filter(
            ({ subject }) => !forms.some((form) => (form.endsWith(".") ? subject.startsWith(form) : subject === form)),
          ),
        ).toEqual([]);
      }),
    );
  });

  test("W3.10 nobody holds anything on the retired or reserved rails", () => {
    expect(everyRow.filter(({ row }) => /^cotal\.[^.]+\.(ctl|control|trace)(\.|$)/.test(row.subject))).toEqual([]);
  });

  test("W61.10 an agent, and the operator, ask and read their own answers; they never serve a plane", () => {
    const live = untrustedRows.filter(({ row }) => row.subject.startsWith("cotal.main.live."));
    const askers = (["agent", "operator"] as const).map((name) => {
      const { owner, actor } = EXAMPLE_HOLDERS[name].holder.principal;
      return { name, me: `${owner}.${actor}` };
    });
    expect(live.map(({ name, row }) => `${name} ${row.op} ${row.subject}`).toSorted()).toEqual(
      askers
        .flatMap(({ name, me }) =>
          ["manager", "delivery"].flatMap((plane) => [
            `${name} pub cotal.main.live.${plane}.${me}`,
            `${name} sub cotal.main.live.${plane}.${me}.>`,
          ]),
        )
        .toSorted(),
    );
  });

  test("H23 no ep subject of another for an observer or an admin", () => {
    for (const name of ["observer", "admin"] as const) {
      const { principal, uid } = EXAMPLE_HOLDERS[name].holder;
      const mine = `${principal.owner}.${principal.actor}.${uid}.`;
      expect(
        rowsOf(name).filter(({ subject }) => subject.startsWith("cotal.main.ep") && !subject.includes(mine)),
      ).toEqual([]);
    }
  });
});

describe("W9.07 W9.08 what the small profiles hold, written by hand", () => {
  const plain = (name: BuiltProfile) => {
    const { principal, uid } = EXAMPLE_HOLDERS[name].holder;
    const me = `${principal.owner}.${principal.actor}.${uid}`;
    return rowsOf(name)
      .filter(({ subject }) => !subject.startsWith("_INBOX"))
      .map(({ op, subject }) => `${op} ${subject.replace(me, "<me>")}`);
  };
  const call = (command: string) => `pub cotal.main.ep.one.provisioner.${command}.<me>.*`;
  const read = (command: string) => `pub cotal.main.ep.one.delivery.${command}.<me>.*`;
  const READS = ["channels", "roster", "frontier", "history", "artifacts", "endpoints", "records"];
  const reads = [call("space"), ...READS.map(read)];
  const rail = "sub cotal.main.ep.reply.*.*.*.<me>.*";
  const FEED = "pub cotal.main.ep.one.delivery.members.<me>.*";
  const OPERATOR = dotForm(EXAMPLE_HOLDERS.operator.holder.principal);

  test.each<[BuiltProfile, string[]]>([
    ["observer", [rail, "sub cotal.main.chat.>", "sub $KV.cotal_presence_main.>", ...reads, FEED]],
    [
      "admin",
      [
        rail,
        "sub cotal.main.chat.>",
        "sub $KV.cotal_presence_main.>",
        "sub cotal.main.inst.>",
        "sub cotal.main.svc.>",
        ...reads,
        FEED,
        read("dm-history"),
      ],
    ],
    [
      "operator",
      [
        rail,
        ...[
          "space",
          "mint",
          "deprovision",
          "deprovision-complete",
          "channel-set",
          "limits-show",
          "limits-set",
          "limits-preview",
          "groups-set",
          "check",
          "channel-purge",
          "history-purge",
          "endpoint-assign",
        ].map(call),
        ...["channels", "roster", "artifacts", "endpoints"].map(read),
        "pub cotal.main.ep.one.delivery.pending.<me>.*",
        "pub cotal.main.ep.one.delivery.groups-show.<me>.*",
        "pub cotal.main.ep.one.*.describe.<me>.*",
        ...["manager", "delivery"].flatMap((plane) => [
          `sub cotal.main.live.${plane}.${OPERATOR}.>`,
          `pub cotal.main.live.${plane}.${OPERATOR}`,
        ]),
        ...[
          "actor-grant",
          "actor-narrow",
          "actor-revoke",
          "actor-list",
          "retire-lifecycle",
          "takeover-lifecycle",
          "operation-list",
        ].map((command) => `pub cotal.main.ep.one.auth.${command}.<me>.*`),
      ],
    ],
    ["channel-writer", [rail, read("channels"), call("channel-set")]],
    ["channel-purger", [rail, read("channels"), call("channel-purge")]],
    ["purger", [rail, read("channels"), call("channel-purge"), call("history-purge")]],
    ["deployer", [rail, ...["space", "channel-set", "check"].map(call), ...["channels", "roster"].map(read), FEED]],
    ["probe", [rail, call("check")]],
    [
      "session-caller",
      [
        "pub cotal.main.eps.manager.sessionsessionsessionses.3.in",
        "sub cotal.main.eps.manager.sessionsessionsessionses.3.out",
      ],
    ],
  ])("PF.01 W10.10 %s", (name, expected) => {
    expect(plain(name).toSorted()).toEqual(expected.toSorted());
  });

  test("W10.05 whatever somebody may ask of an endpoint names the UID that the ledger gave them, and no pattern in its place", () => {
    const views = ["admin", "purger", "deployer", "channel-writer", "channel-purger", "manager-caller"] as const;
    const asks = (["agent", ...views] as const).flatMap((name) => {
      const found = plain(name).filter((row) => /^(?:pub|sub) cotal\.main\.ep\./.test(row));
      return found.map((row) => `${name} ${row}`);
    });
    expect(asks.length).toBeGreaterThan(20);
    expect(asks.filter((row) => !row.endsWith(".<me>.*"))).toEqual([]);
  });

  describe("manager-caller", () => {
    const scope = EXAMPLE_HOLDERS["manager-caller"];
    const { principal, uid } = scope.holder;
    const me = `${principal.owner}.${principal.actor}.${uid}`;
    const rows = (capabilities: readonly string[]): string[] =>
      profileRows("manager-caller", { ...scope, capabilities })
        .map(({ op, subject }) => `${op} ${subject.replace(me, "<me>")}`)
        .toSorted();
    const asked = (command: string) => `pub cotal.main.ep.inst.manager.managermanagermanagermanag.${command}.<me>.*`;
    const least = [`sub _INBOX_${uid}_${scope.inboxNonce}.>`, rail, asked("describe")];

    test("W9.12 has the one instance's describe, its replies and its inbox, and nothing of an agent's", () => {
      expect(rows([])).toEqual(least.toSorted());
    });

    test("W9.12 spawn adds the launch and what it reads, and no slots", () => {
      const more = ["spawn", "status", "models", "resolve-cwd", "ps"].map(asked);
      expect(rows(["spawn"])).toEqual([...least, ...more].toSorted());
      expect(rows(["spawn", "spawn"])).toEqual(rows(["spawn"]));
    });

    test("W9.12 no other word adds a row: no scope implies another, and none is looked up beyond the table", () => {
      const words = ["admin", "channels", "purge", "deploy", "supervise", "slots", "constructor", "tostring"];
      expect(rows(words)).toEqual(rows([]));
      expect(rows([...words, "spawn"])).toEqual(rows(["spawn"]));
    });

    test("W10.11 an instance or an endpoint that is no token mints nothing", () => {
      for (const managerInstanceId of ["*", ">", "a.b", "", "m".repeat(25)]) {
        expect(() => profileRows("manager-caller", { ...scope, managerInstanceId })).toThrow(/instance/);
      }
    });
  });

  test("W10.16 W10.18 a claim that is no name mints nothing", () => {
    const session = EXAMPLE_HOLDERS["session-caller"].session;
    for (const over of [{ endpoint: "*" }, { sessionId: "*" }, { sessionId: "a.b" }, { epoch: -1 }, { epoch: 1.5 }]) {
      const scope = { ...EXAMPLE_HOLDERS["session-caller"], session: { ...session, ...over } };
      expect(() => profileRows("session-caller", scope)).toThrow(/endpoint|session|epoch/);
    }
    const { transferWriter } = EXAMPLE_HOLDERS["transfer-writer"];
    for (const over of [
      { instanceId: "*" },
      { instanceId: ">" },
      { hex: "*" },
      { hex: "AB".repeat(32) },
      { hex: "" },
    ]) {
      const scope = { ...EXAMPLE_HOLDERS["transfer-writer"], transferWriter: { ...transferWriter, ...over } };
      expect(() => profileRows("transfer-writer", scope)).toThrow(/instance|transcript/);
    }
  });

  test("W9.09 W9.11 PF.01 transfer-writer and dm-reader hold their inbox and the rows above, and no reply rail", () => {
    const dollar = (name: BuiltProfile) => plain(name).filter((row) => !/^pub \$(O|JS)\./.test(row));
    expect([dollar("transfer-writer"), dollar("dm-reader")]).toEqual([[], []]);
    expect([plain("transfer-writer").length, plain("dm-reader").length]).toEqual([2, 2]);
  });

  test("W9.05 PF.01 agent", () => {
    const me = "u_aaaaaaaaaaaaaaaaaaaaaaaaaa.alice";
    const own = "u_aaaaaaaaaaaaaaaaaaaaaaaaaa-alice-alicealicealicealicealicea";
    expect(plain("agent").toSorted()).toEqual(
      [
        rail,
        "sub cotal.main.chat.*.*.general",
        "sub cotal.main.chat.*.*.team.>",
        `sub cotal.main.live.manager.${me}.>`,
        `sub cotal.main.live.delivery.${me}.>`,
        `sub cotal.main.take.reviewer.${me}.reply.*`,
        "sub $KV.cotal_presence_main.>",
        `pub cotal.main.chat.${me}.general`,
        `pub cotal.main.inst.*.*.${me}`,
        `pub cotal.main.svc.*.${me}`,
        `pub cotal.main.take.reviewer.${me}`,
        `pub cotal.main.live.manager.${me}`,
        `pub cotal.main.live.delivery.${me}`,
        `pub $KV.cotal_presence_main.${me}`,
        "pub cotal.main.ep.one.*.describe.<me>.*",
        ...reads,
        `pub $JS.API.CONSUMER.MSG.NEXT.DM_main.dm_${own}`,
        `pub $JS.ACK.DM_main.dm_${own}.>`,
        `pub $JS.API.CONSUMER.MSG.NEXT.DLV_main.dlv_${own}`,
        `pub $JS.ACK.DLV_main.dlv_${own}.>`,
        "pub $JS.API.CONSUMER.MSG.NEXT.TASK_main.svc_reviewer",
        "pub $JS.ACK.TASK_main.svc_reviewer.>",
        "pub cotal.main.ep.one.com_example_echo.say.<me>.*",
        "pub cotal.main.ep.all.com_example_echo.say.<me>.*",
        "pub cotal.main.ep.one.com_example_echo.stop.self.<me>.*",
        "pub cotal.main.ep.one.com_example_echo.stop.owner.u_aaaaaaaaaaaaaaaaaaaaaaaaaa.<me>.*",
        ...["register", "caller-view"].map(call),
        ...[
          "durable-join",
          "durable-leave",
          "durable-list",
          "anycast-status",
          "anycast-cancel",
          "anycast-takes",
          "proof",
        ].map((command) => `pub cotal.main.ep.one.delivery.${command}.<me>.*`),
      ].toSorted(),
    );
  });

  test("an agent without a role has nothing of a role", () => {
    const { role: _, ...scope } = EXAMPLE_HOLDERS.agent;
    expect(profileRows("agent", scope).filter(({ subject }) => /\.take\.|TASK_|svc_/.test(subject))).toEqual([]);
  });

  test("W3.06 a role that is no token mints nothing", () => {
    for (const role of ["re view", "*", "a.b", ">", ""]) {
      expect(() => profileRows("agent", { ...EXAMPLE_HOLDERS.agent, role })).toThrow(/role/);
    }
  });
});

describe("the daemons' profiles", () => {
  test("W131.18 a deprovisioner holds the exact names of one lifecycle and no wildcard at all", () => {
    const rows = rowsOf("deprovisioner").filter(({ op }) => op === "pub");
    expect(rows.map(({ subject }) => subject).filter((subject) => /[*>]/.test(subject))).toEqual([]);
    const { target } = EXAMPLE_HOLDERS.deprovisioner;
    expect(rows.filter(({ subject }) => !subject.includes(target.uid))).toEqual([]);
    expect(rows).toHaveLength(3);
  });

  test("no daemon deletes or purges a stream; delivery takes copies back, and a message leaves the role queue, its records (§8.1) and the membership feed one by one; the one purge is a credential of its own for minutes", () => {
    const destructive = everyRow.filter(
      ({ name, row }) =>
        name !== "space-restorer" && /STREAM\.(DELETE|PURGE|MSG\.DELETE)|^\$JS\.API\.STREAM\.>/.test(row.subject),
    );
    expect(destructive.map(({ name, row }) => `${name} ${row.op} ${row.subject}`).toSorted()).toEqual([
      "delivery pub $JS.API.STREAM.MSG.DELETE.DLV_main",
      "delivery pub $JS.API.STREAM.MSG.DELETE.KV_cotal_anycast_main",
      "delivery pub $JS.API.STREAM.MSG.DELETE.TASK_main",
      "history-purger pub $JS.API.STREAM.PURGE.CHAT_main",
      "membership-rw pub $JS.API.STREAM.MSG.DELETE.KV_cotal_membership_main",
    ]);
    const { holder, inboxNonce } = EXAMPLE_HOLDERS["history-purger"];
    expect(rowsOf("history-purger").map(({ account, op, subject }) => `${account} ${op} ${subject}`)).toEqual([
      `store sub _INBOX_${holder.uid}_${inboxNonce}.>`,
      "store pub $JS.API.STREAM.PURGE.CHAT_main",
    ]);
    expect(PROFILES["history-purger"].lifeSeconds).toBe(300);
  });

  /** §13.15: evidence, attempts, the index from their sources, and what was accepted. */
  const ISSUED = [
    "pub $KV.cotal_issued_main.v1.>",
    "pub $KV.cotal_issued_main.attempt.v1.>",
    "pub $KV.cotal_issued_main.bysource.v1.>",
    "pub $KV.cotal_accepted_main.accepted.v1.*",
  ];

  test("the ledger writes its own families and nothing else; it reads by leader only (PD.08)", () => {
    const rows = rowsOf("ledger").map(({ op, subject }) => `${op} ${subject}`);
    expect(rows.filter((row) => row.startsWith("pub $KV")).toSorted()).toEqual(
      [
        "pub $KV.cotal_auth_main.gate.>",
        "pub $KV.cotal_auth_main.cred.>",
        "pub $KV.cotal_auth_main.stage.>",
        "pub $KV.cotal_auth_main.srcgate.>",
        "pub $KV.cotal_auth_main.bysrc.>",
        "pub $KV.cotal_auth_main.servicename.>",
        "pub $KV.cotal_auth_main.epgate.>",
        "pub $KV.cotal_auth_main.epcred.>",
        "pub $KV.cotal_records_main.uid.>",
        "pub $KV.cotal_records_main.lifecycle.>",
        "pub $KV.cotal_records_main.frontier.>",
        "pub $KV.cotal_acl_main.>",
        ...ISSUED,
      ].toSorted(),
    );
    expect(rows.filter((row) => row.includes("DIRECT.GET"))).toEqual([]);
  });

  test("W131.02 the provisioner itself writes no ledger row, no read list and no agent's presence", () => {
    const writes = rowsOf("provisioner").filter(({ op, subject }) => op === "pub" && subject.startsWith("$KV"));
    expect(writes.map(({ subject }) => subject).toSorted()).toEqual([
      "$KV.cotal_channels_main.>",
      "$KV.cotal_leases_main.>",
      "$KV.cotal_records_main.govern.*",
      "$KV.cotal_records_main.svc.*.*.spec",
      "$KV.cotal_records_main.svc.*.*.status",
    ]);
  });

  test("PD.08 the auth service writes the ledger's families, the claim of its plane and read lists; it reads by leader only", () => {
    const rows = rowsOf("auth-ledger").map(({ op, subject }) => `${op} ${subject}`);
    expect(rows.filter((row) => row.startsWith("pub $KV")).toSorted()).toEqual(
      [
        ...["gate", "cred", "stage", "actor", "natkey", "chatholder", "chatowner", "chatsession"].map(
          (family) => `pub $KV.cotal_auth_main.${family}.>`,
        ),
        ...["srcgate", "bysrc", "servicename", "epgate", "epcred"].map(
          (family) => `pub $KV.cotal_auth_main.${family}.>`,
        ),
        "pub $KV.cotal_auth_main.plane",
        ...ISSUED,
        ...["uid", "lifecycle", "frontier"].map((family) => `pub $KV.cotal_records_main.${family}.>`),
        "pub $KV.cotal_acl_main.>",
      ].toSorted(),
    );
    expect(rows.filter((row) => /DIRECT\.GET|STREAM\.(CREATE|UPDATE)|CONSUMER\.(DELETE|MSG)/.test(row))).toEqual([]);
  });

  test("W9.14 who is connected is asked by four of our own credentials, each of its own account", () => {
    const asking = everyRow.filter(({ row }) => row.subject.startsWith("$SYS.REQ.ACCOUNT.PING"));
    expect(asking.map(({ name, row: { account, op, subject } }) => `${name} ${account} ${op} ${subject}`)).toEqual([
      "provisioner front pub $SYS.REQ.ACCOUNT.PING.CONNZ",
      "auth-ledger store pub $SYS.REQ.ACCOUNT.PING.CONNZ",
      "auth-server front pub $SYS.REQ.ACCOUNT.PING.CONNZ",
      "space-restorer store pub $SYS.REQ.ACCOUNT.PING.CONNZ",
    ]);
  });

  test("W10.03 whoever answers the callout has its queue and its inbox, and publishes nothing of its own", () => {
    expect(rowsOf("auth-callout").map(({ account, op, subject }) => `${account} ${op} ${subject}`)).toEqual([
      `auth sub _INBOX_${EXAMPLE_HOLDERS["auth-callout"].holder.uid}_${EXAMPLE_HOLDERS["auth-callout"].inboxNonce}.>`,
      "auth sub $SYS.REQ.USER.AUTH",
    ]);
    expect(rowsOf("auth-callout").at(-1)).toMatchObject({ queue: "callout" });
    expect(PROFILES["auth-callout"].answersWithinSeconds).toBe(10);
    const others = BUILT.filter((name) => "answersWithinSeconds" in PROFILES[name]);
    expect(others).toEqual(["auth-callout"]);
  });

  test.each(["provisioner", "auth-server"] as const)(
    "W132.07 %s serves the class rails through the queue of its endpoint only, and no other route through one",
    (name) => {
      const endpoint = name === "provisioner" ? "provisioner" : "auth";
      const served = rowsOf(name).filter(({ op, subject }) => op === "sub" && subject.startsWith("cotal.main.ep."));
      const routes = ["cotal.main.ep.one.", "cotal.main.ep.v1.one."];
      const isOne = ({ subject }: Row): boolean => routes.some((route) => subject.startsWith(route));
      expect(served.filter(isOne).length).toBeGreaterThanOrEqual(10);
      expect(served.filter((row) => isOne(row) !== ("queue" in row && row.queue === endpoint))).toEqual([]);
      const { sub } = permissionsOf(rowsOf(name), Account.Front);
      const open = sub.allow.filter((entry) => routes.some((route) => entry.startsWith(route)));
      expect(open.filter((entry) => !entry.endsWith(`.> ${endpoint}`))).toEqual([]);
    },
  );

  test("PA.07 contracts are published by the provisioner alone, and nobody else writes a service record", () => {
    const publishing = everyRow.filter(({ row }) => row.op === "pub" && row.subject.startsWith("cotal.main.epc."));
    expect(publishing.map(({ name, row: { account, subject } }) => `${name} ${account} ${subject}`)).toEqual([
      "provisioner store cotal.main.epc.*",
    ]);
    const records = everyRow.filter(({ row }) => row.subject.includes("cotal_records_main.svc."));
    expect(new Set(records.map(({ name }) => name))).toEqual(new Set(["provisioner"]));
    const registering = everyRow.filter(
      ({ row }) => row.op === "pub" && row.subject.includes(".provisioner.register."),
    );
    // An agent that serves asks for it; what it may register the provisioner looks up.
    expect(registering.map(({ name }) => name)).toEqual(["agent", "auth-server", "delivery"]);
  });
});

describe("PF.02 the life of a credential", () => {
  test("none lives for ever; one-shot ones live minutes", () => {
    const lives = Object.fromEntries(BUILT.map((name) => [name, PROFILES[name].lifeSeconds]));
    expect(Object.values(lives).filter((life) => !(life > 0 && life <= 30 * 86_400))).toEqual([]);
    const oneShot = Object.entries(lives).filter(([, life]) => life <= 600);
    expect(oneShot.map(([name]) => name).toSorted()).toEqual([
      "channel-purger",
      "channel-writer",
      "daemon-entrant",
      "deployer",
      "deprovisioner",
      "dm-reader",
      "history-purger",
      "manager-caller",
      "probe",
      "purger",
      "registrar",
      "service",
      "session-caller",
      "store-upgrader",
      "system-administrator",
      "transfer-writer",
    ]);
    expect(Life).toEqual({ OneShot: 300, Service: 600, Errand: 21_600, Static: 2_592_000, Host: 86_400 });
  });

  test("PF.02 each host profile has one function: none serves, writes rows and reaches the system account at once", () => {
    const system = BUILT.filter((name) => (PROFILES[name].accounts as readonly Account[]).includes("system"));
    expect(system).toEqual(["connection-evictor", "membership-observer", "system-administrator"]);
    for (const name of ["connection-evictor", "membership-observer", "system-administrator"] as const) {
      expect(PROFILES[name].accounts).toEqual(["system"]);
    }
  });
});

describe("W9.10 a profile that nothing needs yet mints nothing (H56)", () => {
  const unbuilt = Object.entries(PROFILES).filter(([, profile]) => profile.state === "unbuilt");

  test.each(unbuilt)("%s", async (name, profile) => {
    expect(profile).not.toHaveProperty("rows");
    const account = newKey("account");
    const request = {
      profile: name,
      scope: EXAMPLE_HOLDERS.agent,
      account: "front",
      accountKey: account.publicKey,
      signer: account,
      userKey: newKey("user").publicKey,
      expires: 2_000_000_000,
      limits: { subs: 1, payload: 1 },
    } as unknown as MintRequest<BuiltProfile>;
    await expect(mintUser(request)).rejects.toMatchObject({ code: "unimplemented", outcome: "not-executed" });
  });

  test("they are these, and the views of the exchange are not among them", () => {
    expect(unbuilt.map(([name]) => name).toSorted()).toEqual([
      "commit-applier",
      "effects-canceller",
      "issuer",
      "pool-cleaner",
      "pool-route-reconciler",
      "retirement-requester",
      "run-admitter",
      "settlement-executor",
      "supervisor",
      "teardown",
      "transfer-reader",
    ]);
  });
});

describe("A.04 W2.01 two spaces", () => {
  test("no row of one space overlaps a row of another that carries a space's name", () => {
    fc.assert(
      fc.property(agents, spaces, (scope, space) => {
        fc.pre(space !== scope.space);
        const named = (rows: readonly Row[]) =>
          rows.map(({ subject }) => subject).filter((subject) => !subject.startsWith("_INBOX"));
        const ours = named(profileRows("agent", scope));
        const theirs = named(profileRows("agent", { ...scope, space }));
        expect(ours.filter((subject) => theirs.some((other) => overlap(subject, other)))).toEqual([]);
      }),
    );
  });
});

describe("commands", () => {
  test("a grant never names a reserved command but describe, and every command is a token", () => {
    const all: string[] = [...Object.values(ProvisionerCommand), ...Object.values(ReadCommand)];
    expect(all.filter((command) => !/^[a-z0-9-]{1,32}$/.test(command))).toEqual([]);
    expect(all.filter((command) => (RESERVED_COMMANDS as readonly string[]).includes(command))).toEqual([]);
    expect([...OPERATOR_COMMANDS, ...DEPLOYER_COMMANDS].filter((command) => !all.includes(command))).toEqual([]);
    // What is read is read by one daemon.
    expect(new Set(all).size).toBe(all.length);
  });

  test("H30 the wildcard endpoint is for describe alone", () => {
    const wild = everyRow.filter(({ row }) => row.op === "pub" && row.subject.startsWith("cotal.main.ep.one.*."));
    expect(wild.map(({ name, row }) => `${name} ${row.subject.split(".")[5]}`)).toEqual([
      "agent describe",
      "operator describe",
    ]);
  });
});
