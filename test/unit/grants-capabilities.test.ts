/**
 * What a capability and a serve credential come to in rows (supplement E), spelled by hand, and the largest
 * credentials of both kinds, byte by byte.
 */
import { createHash } from "node:crypto";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { EXAMPLE_HOLDERS } from "../../scripts/generate/example-holders.ts";
import { type GrantedCommand, NO_COMMANDS } from "../../shared/grants/client-profiles.ts";
import { MAX_JWT_BYTES } from "../../shared/grants/gates.ts";
import { PROFILES, profileRows } from "../../shared/grants/matrix.ts";
import { permissionsOf } from "../../shared/grants/permissions.ts";
import { Account } from "../../shared/grants/row.ts";
import { AuthzMode } from "../../shared/protocol/endpoint/grammar.ts";
import { mintUser, readUserJwt } from "../../shared/trust/jwt.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { failure, refusal } from "../support/refusal.ts";
import {
  WORST_COMMANDS,
  mintWorstAgent,
  mintWorstService,
  worstAgent,
  worstService,
} from "../support/worst-credentials.ts";

const { commands: _, serves: __, ...ALICE } = EXAMPLE_HOLDERS.agent;
const { principal, uid } = ALICE.holder;
const me = `${principal.owner}.${principal.actor}.${uid}`;
const ECHO = "com.example.echo";

/** What these bring to an agent's rows, as text. */
function added(commands: readonly GrantedCommand[], serves = false): string[] {
  const before = new Set(profileRows("agent", { ...ALICE, ...NO_COMMANDS }).map(({ subject }) => subject));
  return profileRows("agent", { ...ALICE, commands, serves })
    .filter(({ subject }) => !before.has(subject))
    .map(({ account, op, subject }) => `${account} ${op} ${subject.replace(me, "<me>")}`);
}

const say = { endpoint: ECHO, command: "say", scatter: false };
const one = `front pub cotal.main.ep.one.com_example_echo`;

describe("PD.06 W132.08 W10.05 a granted command", () => {
  test("untargeted: the class rail, and with @all the scatter rail; oneself pinned, only the nonce free", () => {
    expect(added([say])).toEqual([`${one}.say.<me>.*`]);
    expect(added([{ ...say, scatter: true }])).toEqual([
      `${one}.say.<me>.*`,
      "front pub cotal.main.ep.all.com_example_echo.say.<me>.*",
    ]);
  });

  test("targeted: oneself, and within one's own owner; nothing untargeted, nothing scattered", () => {
    expect(added([{ ...say, modes: ["self"], scatter: true }])).toEqual([`${one}.say.self.<me>.*`]);
    expect(added([{ ...say, modes: ["owner", "self"] }])).toEqual([
      `${one}.say.self.<me>.*`,
      `${one}.say.owner.${principal.owner}.<me>.*`,
    ]);
  });

  test.each(["any", "child", "ledger", "handle", "exact"] as const)("the mode %s comes from no capability", (mode) => {
    expect(added([{ ...say, modes: [mode], scatter: true }])).toEqual([]);
    expect(added([{ ...say, modes: [mode, "self"] }])).toEqual([`${one}.say.self.<me>.*`]);
  });

  test("serve opens registering and the view of a caller at the provisioner, and nothing else", () => {
    expect(added([], true)).toEqual(
      ["register", "caller-view"].map((command) => `front pub cotal.main.ep.one.provisioner.${command}.<me>.*`),
    );
  });

  test.each(["provisioner", "auth", "*", "com.*", "com_example_echo"])("no row for the endpoint %s", (endpoint) => {
    expect(refusal(() => added([{ ...say, endpoint }])).code).toBe("bad-request");
  });

  test.each(["describe", "cancel", "lease", "commit", "resume", "*", "a.b", ""])(
    "no row for the command %j",
    (command) => {
      expect(refusal(() => added([{ ...say, command, scatter: true }])).code).toBe("bad-request");
    },
  );

  test("for any heads: no wildcard but the nonce, no other owner, no word but self and owner", () => {
    const commands = fc.array(
      fc.record(
        {
          endpoint: fc.constantFrom(ECHO, "org.x"),
          command: fc.constantFrom("say", "stop"),
          modes: fc.subarray(Object.values(AuthzMode), { minLength: 1 }),
          scatter: fc.boolean(),
        },
        { requiredKeys: ["endpoint", "command", "scatter"] },
      ),
      { maxLength: 6 },
    );
    const lawful = new RegExp(
      `^front pub cotal\\.main\\.ep\\.(one|all)\\.(com_example_echo|org_x)\\.(say|stop)\\.(self\\.|owner\\.${principal.owner}\\.)?<me>\\.\\*$`,
    );
    fc.assert(
      fc.property(commands, (list) => {
        const rows = added(list);
        expect(rows.filter((row) => !lawful.test(row))).toEqual([]);
        const scattered = rows.filter((row) => row.includes(".ep.all."));
        expect(scattered.length > 0).toBe(list.some(({ modes, scatter }) => modes === undefined && scatter));
      }),
    );
  });
});

describe("PD.06 W132.07 a serve credential", () => {
  const scope = EXAMPLE_HOLDERS.service;
  const e = "com_example_echo";
  const iid = scope.instanceId;

  test("its registered commands on its own endpoint, replies, and the planes of its own incarnation; nothing else", () => {
    const served = ["say", "stop", "describe"].flatMap((command) =>
      ["ep", "ep.v1"].flatMap((rail) => [
        `sub cotal.main.${rail}.one.${e}.${command}.> ${e}`,
        `sub cotal.main.${rail}.all.${e}.${command}.>`,
        `sub cotal.main.${rail}.inst.${e}.${iid}.${command}.>`,
      ]),
    );
    const rows = profileRows("service", scope).map((row) => {
      const queue = row.op === "sub" && row.queue !== undefined ? ` ${row.queue}` : "";
      return `${row.op} ${row.subject}${queue}`;
    });
    expect(rows.toSorted()).toEqual(
      [
        `sub _INBOX_${iid}_${scope.inboxNonce}.>`,
        ...served,
        `pub cotal.main.ep.reply.${e}.${iid}.1.*.*.*.*`,
        `pub cotal.main.ep.v1.reply.${e}.${iid}.1.*.*.*.*.*`,
        `pub cotal.main.epe.${e}.${iid}.1.>`,
        `pub cotal.main.ept.${e}.${iid}.1.*.schedule`,
        `pub cotal.main.epr.${e}.${iid}.1.>`,
      ].toSorted(),
    );
    expect(PROFILES.service).toMatchObject({ trusted: false, lifeSeconds: 600, accounts: ["front"] });
  });

  test("a command that is named twice is served once", () => {
    const twice = profileRows("service", { ...scope, commands: ["say", "say", "stop"] });
    expect(twice).toEqual(profileRows("service", scope));
  });

  test.each([
    { endpoint: "auth" },
    { endpoint: "*" },
    { endpoint: "com.*" },
    { commands: ["describe"] },
    { commands: [">"] },
  ])("%j mints nothing", (over) => {
    expect(refusal(() => profileRows("service", { ...scope, ...over })).code).toBe("bad-request");
  });
});

describe("PD.12 the largest credentials", () => {
  const sha256 = (text: string): string => createHash("sha256").update(text).digest("hex");

  test("the agent: 3 endpoints of 12 commands in two modes, beside its lists; the same bytes at every mint", async () => {
    expect(new Set(WORST_COMMANDS.map(({ endpoint }) => endpoint)).size).toBe(3);
    expect(WORST_COMMANDS).toHaveLength(36);
    const [first, second] = await Promise.all([mintWorstAgent(), mintWorstAgent()]);
    expect(second.jwt).toBe(first.jwt);
    expect(first.permissions.pub.allow.filter((entry) => /\.(self|owner)\./.test(entry))).toHaveLength(72);
    expect(sha256(first.jwt)).toBe("6909c8cc11de7f89ed7b25c126f2e21c4c1b40b35c28f862664b40fe0c80113b");
    expect(first.jwt.length).toBeLessThanOrEqual(MAX_JWT_BYTES);
    expect(first.jwt.length).toBeGreaterThan(MAX_JWT_BYTES * 0.98);
  });

  test("the instance that serves 12 commands; the same bytes at every mint", async () => {
    expect(worstService.commands).toHaveLength(12);
    const [first, second] = await Promise.all([mintWorstService(), mintWorstService()]);
    expect(second.jwt).toBe(first.jwt);
    expect(sha256(first.jwt)).toBe("0387e60b1a1b0f47c88f8c16694857a69f9e239e1d28ba2ff45f14847552ed1e");
    expect(first.jwt.length).toBeLessThanOrEqual(MAX_JWT_BYTES);
    expect(first.jwt.length).toBeGreaterThan(MAX_JWT_BYTES * 0.98);
  });

  test("one command more is refused, with an entry named and what helps", async () => {
    const signer = newKey("account");
    const more = { endpoint: "acme.ops", command: "one-more", modes: ["self", "owner"], scatter: false } as const;
    const error = await failure(
      mintUser({
        profile: "agent",
        scope: { ...worstAgent, commands: [...WORST_COMMANDS, more] },
        account: Account.Front,
        accountKey: signer.publicKey,
        signer,
        userKey: newKey("user").publicKey,
        expires: 2_000_000_000,
        limits: { subs: 1, payload: 1 },
        name: "Agent",
        capabilities: ["a.dev@all", "a.lab@all", "a.ops@all"],
      }),
    );
    expect(error).toMatchObject({ code: "resource-exhausted", outcome: "not-executed" });
    expect(error.message).toContain("acme.ops one-more");
    expect(error.next).toContain("fewer capabilities");
  });

  test("what it was minted with stands in it, for a renewal; and it needs no deny of its own", async () => {
    const { jwt, permissions } = await mintWorstAgent();
    expect(readUserJwt(jwt)).toMatchObject({
      capabilities: ["a.dev@all", "a.lab@all", "a.ops@all"],
      allowSubscribe: ["general", "team.>"],
      allowPublish: ["general", "team.>"],
      role: "builder",
    });
    expect(permissionsOf(profileRows("agent", worstAgent), Account.Front)).toEqual(permissions);
    expect(permissions.pub.deny).toEqual([]);
  });
});
