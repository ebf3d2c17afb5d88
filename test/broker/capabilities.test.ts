/**
 * Named capabilities in a whole space: what a mint and a sign-in make of them, and that the broker lets
 * through what they open and refuses everything beside it.
 */
import { randomBytes } from "node:crypto";
import type { NatsConnection } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { leaderLast } from "../../shared/broker/reads.ts";
import type { ScopeOf } from "../../shared/grants/matrix.ts";
import { kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { bucketStream, spaceNames } from "../../shared/protocol/base/names.ts";
import { drawLifecycleUid, drawNonce } from "../../shared/protocol/base/principals.ts";
import { EndpointName, endpointSubjects } from "../../shared/protocol/endpoint/grammar.ts";
import type { MintArgs } from "../../shared/protocol/endpoint/provisioner-shapes.ts";
import { AclRow, ledgerKey } from "../../shared/protocol/ledger/rows.ts";
import { readUserJwt } from "../../shared/trust/jwt.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { type AuthService, startAuthService } from "../support/auth-service.ts";
import { ECHO, echoHead, headOf, putHead } from "../support/heads.ts";
import { accountKeys, daemonCredential, personOf } from "../support/holders.ts";
import { type Probe, type Tap, createProber, tap } from "../support/probe.ts";
import { failure } from "../support/refusal.ts";
import { type Minted, type TestSpace, startSpace } from "../support/space.ts";
import { until } from "../support/until.ts";
import { mintWorstAgent, mintWorstService, worstUser } from "../support/worst-credentials.ts";
import { type Person, caller } from "./expected/kit.ts";

const SPACE = "main";
const JOB = "com.example.job";
const rails = endpointSubjects(SPACE);
const nonce = (): string => randomBytes(16).toString("hex");
const address = (route: string, endpoint: string, command: string, who: Person): Probe => ({
  op: "pub",
  subject: `cotal.${SPACE}.ep.${route}.${endpoint}.${command}.${caller(who)}.${nonce()}`,
});

async function row(space: TestSpace, bucket: "acl" | "records", key: string): Promise<unknown> {
  const place = spaceNames(SPACE).bucket[bucket];
  const entry = await leaderLast(await space.store(), bucketStream(place), kvKey(place, key));
  return entry === undefined ? undefined : JSON.parse(new TextDecoder().decode(entry.data));
}

describe("static credentials", () => {
  let space: TestSpace;
  /** Somebody of the owner that everybody here has. */
  let known: Person;
  beforeAll(async () => {
    space = await startSpace();
    known = personOf(await space.mint({ actor: "known" }));
    await putHead(space, echoHead);
    await putHead(space, headOf(JOB, [{ command: "say" }, { command: "stop", modes: ["self", "owner"] }]));
  }, 60_000);
  afterAll(() => space.stop());

  const mintArgs = (over: Partial<MintArgs> = {}): MintArgs => ({
    profile: "agent",
    owner: "acme",
    actor: "somebody",
    name: "somebody",
    userKey: newKey("user").publicKey,
    ...over,
  });

  /** An instance that serves, by a credential of its own; what it hears of one command. */
  async function serving(owner: string): Promise<{ readonly nc: NatsConnection; readonly scope: ScopeOf<"service"> }> {
    const instanceId = drawLifecycleUid(randomBytes);
    const scope = {
      space: SPACE,
      holder: { principal: { owner, actor: `svc_${instanceId}` }, uid: instanceId },
      inboxNonce: drawNonce(randomBytes),
      endpoint: ECHO,
      commands: ["say", "stop", "log"],
      instanceId,
      epoch: 1,
    };
    return { nc: await space.connect(await daemonCredential(space, "service", "front", scope)), scope };
  }

  async function hearing(scope: ScopeOf<"service">, nc: NatsConnection, command: string): Promise<Tap[]> {
    const served = rails.serve(ECHO, scope.instanceId, command);
    return Promise.all(served.map(({ subject, queue }) => tap(nc, subject, queue)));
  }

  const heard = (taps: readonly Tap[]): string[] => taps.flatMap((one) => one.subjects());

  test("PD.06 W10.05 a granted command goes through to who serves it, and its answer comes back", async () => {
    const asker = await space.mint({ actor: "asker", capabilities: [ECHO] });
    const me = personOf(asker);
    const { nc: server, scope } = await serving(me.owner);
    const taps = await hearing(scope, server, "say");
    const nc = await space.connect(asker);
    const answers = await tap(nc, rails.replyGrant({ principal: me, uid: me.uid }));
    const asked = address("one", "com_example_echo", "say", me).subject;
    nc.publish(asked, "hello");
    await until("it was heard", () => heard(taps).length === 1);
    expect(heard(taps)).toEqual([asked]);
    const answer = `cotal.${SPACE}.ep.reply.com_example_echo.${scope.instanceId}.1.${caller(me)}.${asked.split(".").at(-1)}`;
    server.publish(answer, "world");
    await until("the answer came", () => answers.messages.length === 1);
    expect(answers.messages.map((message) => [message.subject, message.string()])).toEqual([[answer, "world"]]);
  });

  test("PD.06 with @all every instance hears it once; without, the broker refuses it and nobody hears it", async () => {
    const all = await space.mint({ actor: "scatterer", capabilities: [`${ECHO}@all`] });
    const plain = await space.mint({ actor: "plain", capabilities: [ECHO] });
    const instances = await Promise.all([serving(personOf(all).owner), serving(personOf(all).owner)]);
    const taps = await Promise.all(instances.map(({ scope, nc }) => hearing(scope, nc, "say")));
    const scatter = (one: Minted) => address("all", "com_example_echo", "say", personOf(one));
    const probers = await Promise.all([all, plain].map(async (one) => createProber(await space.connect(one))));
    expect(await probers[1]?.isRefused(scatter(plain))).toBe(true);
    expect(await probers[0]?.isRefused(scatter(all))).toBe(false);
    await until("both heard it", () => taps.every((of) => heard(of).length === 1));
    expect(new Set(taps.flatMap(heard)).size).toBe(1);
  });

  test("W132.08 PD.06 refused beside it: the same command elsewhere, other commands, modes, callers and routes", async () => {
    const asker = await space.mint({ actor: "narrow", capabilities: [ECHO] });
    const me = personOf(asker);
    const sibling = personOf(await space.mint({ actor: "sibling" }));
    const stranger = personOf(await space.mint({ actor: "stranger", owner: "others" }));
    const prober = createProber(await space.connect(asker));
    const echo = (command: string, who = me) => address("one", "com_example_echo", command, who);
    const lawful = [echo("say"), echo("stop.self"), echo(`stop.owner.${me.owner}`), echo("describe")];
    expect(await prober.refused(lawful)).toEqual([]);
    const wrong = [
      ...["say", "stop.self", `stop.owner.${me.owner}`].map((command) =>
        address("one", "com_example_job", command, me),
      ),
      ...["log", "stop", "say.self", `stop.owner.${stranger.owner}`, "stop.owner.*"].map((command) => echo(command)),
      ...["any", "child", "ledger"].map((mode) => echo(`stop.${mode}.${me.owner}`)),
      ...["handle", "exact"].map((mode) => echo(`stop.${mode}.${caller(me)}`)),
      ...[sibling, stranger, { ...me, uid: sibling.uid }].flatMap((who) => [
        echo("say", who),
        echo("stop.self", who),
        echo(`stop.owner.${me.owner}`, who),
      ]),
      ...["all", `inst.com_example_echo.${me.uid}`, "v1.one"].map((route) =>
        address(route, "com_example_echo", "say", me),
      ),
      // `*` as endpoint is for describe on the class rail alone.
      address("one", "*", "say", me),
      ...["all", "v1.one"].flatMap((route) => [
        address(route, "*", "describe", me),
        address(route, "com_example_echo", "describe", me),
      ]),
    ];
    expect(await prober.refused(wrong)).toEqual(wrong);
  });

  test("without any capability the broker opens describe and nothing else of it; serve opens two commands of the provisioner", async () => {
    const bare = await space.mint({ actor: "bare" });
    const server = await space.mint({ actor: "server", capabilities: ["serve"] });
    const commands = ["register", "caller-view"];
    const own = (who: Person) => commands.map((command) => address("one", "provisioner", command, who));
    for (const [one, opened] of [[bare, []] as const, [server, commands] as const]) {
      const me = personOf(one);
      const prober = createProber(await space.connect(one));
      const asked = own(me);
      expect(await prober.refused(asked)).toEqual(opened.length === 0 ? asked : []);
      const rest = [
        ...["say", "stop.self"].map((command) => address("one", "com_example_echo", command, me)),
        ...["mint", "endpoint-assign", "check"].map((command) => address("one", "provisioner", command, me)),
      ];
      expect(await prober.refused(rest)).toEqual(rest);
      expect(await prober.refused([address("one", "com_example_echo", "describe", me)])).toEqual([]);
    }
  });

  test("the ACL row and the credential say what it was minted with, and a renewal is the same request, with what came since", async () => {
    const request = mintArgs({ actor: "renewed", capabilities: ["serve", `${JOB}@all`, JOB] });
    const first = (await space.call("mint", request)) as { jwt: string; uid: string };
    const view = readUserJwt(first.jwt);
    expect(view.capabilities).toEqual([JOB, `${JOB}@all`, "serve"]);
    const acl = AclRow.parse(await row(space, "acl", ledgerKey.acl(view.principal, view.uid)));
    expect(acl.capabilities).toEqual(view.capabilities);
    await putHead(space, headOf(JOB, [{ command: "say" }, { command: "later" }]));
    const again = { ...request, owner: view.principal.owner, capabilities: [...view.capabilities] };
    const second = (await space.call("mint", again)) as { jwt: string; uid: string };
    expect(second.uid).toBe(first.uid);
    expect(second.jwt).not.toContain("stop");
    const claims = Buffer.from(second.jwt.split(".")[1] ?? "", "base64url").toString();
    expect(claims).toContain(".all.com_example_job.later.");
    const other = await failure(space.call("mint", { ...request, capabilities: [JOB] }));
    expect(other.code).toBe("conflict");
    // Without the field it is the request that it always was.
    const bare = readUserJwt(((await space.call("mint", mintArgs({ actor: "bare_row" }))) as { jwt: string }).jwt);
    expect(await row(space, "acl", ledgerKey.acl(bare.principal, bare.uid))).not.toHaveProperty("capabilities");
  });

  const refusedMint = async (over: Partial<MintArgs>) => {
    const error = await failure(space.call("mint", mintArgs(over)));
    const { owner } = known;
    expect(await row(space, "records", ledgerKey.head({ owner, actor: "known" }))).toBeDefined();
    expect(await row(space, "records", ledgerKey.head({ owner, actor: over.actor ?? "" }))).toBeUndefined();
    return error;
  };

  test.each([
    [
      "an endpoint that nobody has registered",
      { capabilities: ["com.example.none"] },
      "failed-precondition",
      /com\.example\.none/,
    ],
    ["a word that opens nothing", { capabilities: ["audit"] }, "bad-request", /"audit"/],
    ["what is no capability", { capabilities: ["com.example.*"] }, "bad-request", /capabilities/],
    ["an endpoint of this project", { capabilities: ["provisioner"] }, "bad-request", /"provisioner"/],
    ["a profile that takes none", { profile: "observer", capabilities: ["serve"] }, "bad-request", /observer takes no/],
  ] as const)("A.08 %s refuses the mint, saying so, and no row was written", async (_, over, code, message) => {
    const error = await refusedMint({ actor: "refused", ...over, capabilities: [...over.capabilities] });
    expect(error).toMatchObject({ code, outcome: "not-executed" });
    expect(error.message).toMatch(message);
    expect(error.next).toEqual(expect.any(String));
  });

  test("PD.12 more commands than a credential carries refuse the mint before any row, with one of them named", async () => {
    const many = Array.from({ length: 200 }, (_, at) => ({ command: `command-number-${at}` }));
    await putHead(space, headOf("com.example.many", many));
    const error = await refusedMint({ actor: "many", capabilities: ["com.example.many"] });
    expect(error).toMatchObject({ code: "resource-exhausted", outcome: "not-executed" });
    expect(error.message).toContain("com.example.many command-number-");
    expect(error.next).toContain("capabilities");
  });

  test("a head that is corrupt refuses the mint of who names it", async () => {
    await putHead(space, { ...headOf("com.example.bad", []), v: 2 } as unknown as typeof echoHead);
    const error = await refusedMint({ actor: "corrupt", capabilities: ["com.example.bad"] });
    expect(error).toMatchObject({ code: "failed-precondition", outcome: "not-executed" });
    expect(error.message).toContain("govern.com_example_bad");
  });

  test("PD.12 the largest agent and the largest instance connect, and may do what they say", async () => {
    const now = Math.floor(Date.now() / 1000);
    const by = accountKeys(space, SPACE, "front");
    const over = { by, issued: now, expires: now + 600 };
    for (const { jwt, permissions } of await Promise.all([mintWorstAgent(over), mintWorstService(over)])) {
      expect(jwt.length).toBeGreaterThan(16_000);
      const nc = await space.connect({ view: readUserJwt(jwt), jwt, sign: worstUser.sign });
      const literal = (entry: string): string => entry.replaceAll("*", "x".repeat(26)).replace(/>$/, "y");
      const prober = createProber(nc);
      const published = permissions.pub.allow.map((entry): Probe => ({ op: "pub", subject: literal(entry) }));
      const subscribed = permissions.sub.allow.map((entry): Probe => {
        const [subject = "", queue] = entry.split(" ");
        return { op: "sub", subject, ...(queue === undefined ? {} : { queue }) };
      });
      expect(published.length + subscribed.length).toBeGreaterThan(80);
      expect(await prober.refused([...published, ...subscribed])).toEqual([]);
      expect(await prober.isRefused({ op: "pub", subject: `cotal.${SPACE}.ep.one.acme_ops.more.x.y.z.n` })).toBe(true);
    }
  });
});

describe("where people sign in", () => {
  let space: TestSpace;
  let auth: AuthService;
  let owner: string;
  beforeAll(async () => {
    space = await startSpace({ auth: "user" });
    auth = await startAuthService(space);
    ({ owner } = await auth.signIn("cli"));
    await putHead(space, echoHead);
  }, 60_000);
  afterAll(async () => {
    await auth.stop();
    await space.stop();
  });

  const change = (command: "actor-grant" | "actor-narrow", actor: string, capabilities: readonly string[]) =>
    space.call(
      command,
      {
        owner,
        actor,
        capabilities,
        ...(command === "actor-grant" ? { allowSubscribe: [">"], allowPublish: [">"] } : {}),
      },
      { endpoint: EndpointName.Auth },
    ) as Promise<{ actor: { lifecycleUid: string } }>;

  /** Signs in and asks the broker which of these it refuses. */
  const refusedNow = async (actor: string, tails: (me: Person) => readonly Probe[]): Promise<readonly Probe[]> => {
    const answer = await auth.signIn(actor);
    const { nc, close } = await auth.connect(answer);
    const probes = tails({ owner, actor, uid: answer.lifecycleUid, connId: "" });
    const refused = await createProber(nc).refused(probes);
    await close();
    return refused;
  };

  const asked = (me: Person): Probe[] => [
    address("one", "com_example_echo", "say", me),
    address("all", "com_example_echo", "say", me),
    address("one", "com_example_echo", "stop.self", me),
    address("one", "com_example_echo", `stop.owner.${owner}`, me),
    address("one", "provisioner", "register", me),
  ];
  const beside = (me: Person): Probe[] => [
    address("one", "com_example_echo", "log", me),
    address("one", "com_example_job", "say", me),
    address("one", "com_example_echo", `stop.any.${owner}`, me),
    address("one", "com_example_echo", "say", { ...me, actor: "other" }),
    address("one", "com_example_echo", "say", { ...me, uid: "z".repeat(26) }),
    address("all", "com_example_echo", "describe", me),
  ];

  test("W132.08 PD.06 W10.05 a sign-in opens what its row names, by the head as it is at that connect", async () => {
    await change("actor-grant", "worker", [`${ECHO}@all`, "serve"]);
    expect(await refusedNow("worker", asked)).toEqual([]);
    expect(await refusedNow("worker", beside)).toHaveLength(6);
    const { lifecycleUid } = (await change("actor-narrow", "worker", [ECHO])).actor;
    const key = `${owner}.worker.${lifecycleUid}`;
    expect(AclRow.parse(await row(space, "acl", key)).capabilities).toEqual([ECHO]);
    const subjects = (await refusedNow("worker", asked)).map(({ subject }) => subject.split(".").slice(3, 6).join("."));
    expect(subjects).toEqual(["all.com_example_echo.say", "one.provisioner.register"]);
  });

  test("an endpoint opens with the next connect after its first registration, and not before", async () => {
    await change("actor-grant", "early", ["com.example.late"]);
    const probe = (me: Person) => [address("one", "com_example_late", "run", me)];
    expect(await refusedNow("early", probe)).toHaveLength(1);
    await putHead(space, headOf("com.example.late", [{ command: "run" }]));
    expect(await refusedNow("early", probe)).toEqual([]);
  });

  test("a head that is corrupt keeps out who names it, and tells the person which row it is", async () => {
    await change("actor-grant", "broken", ["com.example.bad"]);
    await putHead(space, { ...headOf("com.example.bad", []), v: 2 } as unknown as typeof echoHead);
    await expect(auth.signIn("broken")).rejects.toMatchObject({
      status: 409,
      body: {
        code: "failed-precondition",
        error: expect.stringContaining("govern.com_example_bad") as unknown,
      },
    });
    expect(await refusedNow("cli", (me) => [address("one", "com_example_echo", "describe", me)])).toEqual([]);
  });

  test("PD.12 a grant of more commands than a credential carries is refused, and nobody is granted it", async () => {
    const many = Array.from({ length: 200 }, (_, at) => ({ command: `command-number-${at}` }));
    await putHead(space, headOf("com.example.many", many));
    const error = await failure(change("actor-grant", "many", ["com.example.many"]));
    expect(error).toMatchObject({ code: "resource-exhausted", outcome: "not-executed" });
    await change("actor-grant", "many", ["serve"]);
    const answer = await auth.signIn("many");
    // It was granted before it had grown: the sign-in stands, the connect does not.
    await change("actor-grant", "grown", ["com.example.grown"]);
    const grown = await auth.signIn("grown");
    await putHead(space, headOf("com.example.grown", many));
    await expect(auth.connect(grown)).rejects.toMatchObject({ code: "unauthenticated" });
    await (await auth.connect(answer)).close();
  });

  test("A.08 the operator is told which words there are, over the wire too", async () => {
    const error = await failure(change("actor-grant", "worker", ["audit"]));
    expect(error).toMatchObject({ code: "bad-request", outcome: "not-executed" });
    expect([error.message, error.next].join(" ")).toMatch(/"audit".*serve/);
  });
});
