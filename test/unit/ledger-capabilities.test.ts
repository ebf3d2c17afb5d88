/** From capabilities to commands: what the governance heads say, read once each, and never guessed. */
import { describe, expect, test } from "vitest";
import { resolveCapabilities } from "../../shared/ledger/capabilities.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import { ECHO, echoHead, headKey, headOf } from "../support/heads.ts";
import { memoryLedger } from "../support/memory-ledger.ts";
import { failure } from "../support/refusal.ts";

const JOB = "com.example.job";

function heads() {
  const ledger = memoryLedger();
  ledger.put("records", headKey(ECHO), echoHead);
  ledger.put("records", headKey(JOB), headOf(JOB, [{ command: "run" }, { command: "end", modes: ["owner"] }]));
  const store = ledger.store();
  const read: string[] = [];
  const watched: Pick<LedgerStore, "read"> = {
    read: (bucket, key) => (read.push(`${bucket} ${key}`), store.read(bucket, key)),
  };
  return { ledger, watched, read };
}

const opened = async (...capabilities: string[]): Promise<string[]> =>
  (await resolveCapabilities(heads().watched, capabilities)).commands.map(
    ({ endpoint, command, modes, scatter }) =>
      `${endpoint} ${command}${modes === undefined ? "" : ` ${modes.length}`}${scatter ? " all" : ""}`,
  );

describe("PD.06 PB.06 what a capability opens", () => {
  test("without a name the commands that name none, with one those that name it, and no other endpoint's", async () => {
    expect(await opened(ECHO)).toEqual([`${ECHO} say`, `${ECHO} stop 7`]);
    expect(await opened(`${ECHO}:audit`)).toEqual([`${ECHO} log`]);
    expect(await opened(`${ECHO}:other`)).toEqual([]);
    expect(await opened(JOB)).toEqual([`${JOB} end 1`, `${JOB} run`]);
  });

  test("@all is of the commands that its own capability opens; one that is opened twice stands once", async () => {
    expect(await opened(`${ECHO}@all`)).toEqual([`${ECHO} say all`, `${ECHO} stop 7 all`]);
    expect(await opened(ECHO, `${ECHO}:audit@all`)).toEqual([`${ECHO} log all`, `${ECHO} say`, `${ECHO} stop 7`]);
    expect(await opened(ECHO, `${ECHO}@all`)).toEqual([`${ECHO} say all`, `${ECHO} stop 7 all`]);
  });

  test("words open no command, also such as once were granted and mean nothing", async () => {
    const { watched, read } = heads();
    const none = { commands: [], unregistered: [] };
    expect(await resolveCapabilities(watched, ["admin", "say", "spawn"])).toEqual({ ...none, serves: false });
    expect(await resolveCapabilities(watched, ["serve"])).toEqual({ ...none, serves: true });
    expect(read).toEqual([]);
  });

  test("one read for each endpoint, whatever is named of it", async () => {
    const { watched, read } = heads();
    await resolveCapabilities(watched, [ECHO, `${ECHO}:audit`, `${ECHO}:x@all`, JOB, "serve"]);
    expect(read.toSorted()).toEqual([`records govern.com_example_echo`, `records govern.com_example_job`]);
  });

  test("an endpoint that nobody has registered opens nothing, and is named", async () => {
    const { watched } = heads();
    const { commands, unregistered } = await resolveCapabilities(watched, ["com.example.none", JOB, "com.a:x"]);
    expect(commands.map(({ command }) => command)).toEqual(["end", "run"]);
    expect(unregistered).toEqual(["com.a", "com.example.none"]);
  });

  test.each<[string, (ledger: ReturnType<typeof memoryLedger>) => void]>([
    ["has a field that nobody knows", (ledger) => ledger.put("records", headKey(ECHO), { ...echoHead, more: 1 })],
    ["was deleted", (ledger) => ledger.mark("records", headKey(ECHO))],
    ["is no row", (ledger) => ledger.put("records", headKey(ECHO), "x")],
    ["names another endpoint", (ledger) => ledger.put("records", headKey(ECHO), { ...echoHead, endpoint: JOB })],
  ])("a head that %s refuses, and says which", async (_, harm) => {
    const { ledger, watched } = heads();
    harm(ledger);
    const error = await failure(resolveCapabilities(watched, [ECHO, JOB]));
    expect(error).toMatchObject({ code: "failed-precondition", outcome: "not-executed" });
    expect(error.message).toContain("govern.com_example_echo");
    // Who does not name it is not held up by it.
    expect((await resolveCapabilities(watched, [JOB])).commands).toHaveLength(2);
  });
});
