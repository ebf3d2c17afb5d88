/** Keeping spaces: what an opening that fails, a wait and a renewal that fails leave behind. */
import { describe, expect, test } from "vitest";
import { createBackoff } from "../../shared/daemon/backoff.ts";
import { createHealth } from "../../shared/daemon/health.ts";
import { type Kept, keep } from "../../shared/daemon/keep.ts";
import { createLog } from "../../shared/daemon/log.ts";
import { type KeepSpacesOptions, type KeptSpace, type SpaceHooks, keepSpaces } from "../../shared/daemon/spaces.ts";
import { CotalError } from "../../shared/protocol/base/errors.ts";
import { eventually } from "../support/cli.ts";

type Over = Partial<Pick<KeepSpacesOptions<unknown>, "spaces" | "discover" | "renewEvery">>;

function keeper(open: (hooks: SpaceHooks, round: number) => Promise<KeptSpace>, over: Over = {}) {
  const lines: Record<string, unknown>[] = [];
  const log = createLog({
    service: "test",
    level: "trace",
    destination: { write: (line) => void lines.push(JSON.parse(line) as Record<string, unknown>) },
  });
  const health = createHealth();
  const kept: Kept[] = [];
  let round = 0;
  keepSpaces({
    context: {
      health,
      log,
      keep: (name, run) => {
        const one = keep(name, run, {
          health,
          log,
          backoff: createBackoff({ baseMs: 2, capMs: 2 }),
          onFatal: () => undefined,
        });
        kept.push(one);
        return one;
      },
    },
    spaces: ["main"],
    open: (hooks) => open(hooks, (round += 1)),
    ...over,
  });
  return {
    lines,
    rounds: () => round,
    check: (name: string) => health.report().checks.find((one) => one.name === name),
    said: (msg: string) => lines.filter((line) => line["msg"] === msg),
    stop: () => Promise.all(kept.map((one) => one.stop())),
  };
}

const served = (over: Partial<KeptSpace> = {}): KeptSpace => ({
  broken: new Promise(() => undefined),
  renew: () => Promise.resolve(),
  stopIntake: () => Promise.resolve(),
  close: () => Promise.resolve(),
  ...over,
});

const until = (what: () => boolean) => eventually(what, (done) => done, 5000);

describe("an opening", () => {
  test("that failed leaves no check behind: the next one has its own, and serves", async () => {
    const refused = new CotalError("unauthenticated", "connect: the broker refuses the credential");
    const spaces = keeper((hooks, round) => {
      hooks.onStatus("store", { type: "retrying", failures: 1, waitMs: 1, error: refused });
      if (round < 3) return Promise.reject(refused);
      hooks.onStatus("store", { type: "up", server: "", version: "" });
      return Promise.resolve(served());
    });
    await until(() => spaces.check("loop:space:main")?.ok === true);
    expect(spaces.rounds()).toBe(3);
    expect(spaces.check("connection:main.store")).toMatchObject({ ok: true });
    const told = spaces.said("a loop failed and starts again after a wait");
    expect(told.map(({ err }) => (err as { message: string }).message)).toEqual([refused.message, refused.message]);
    expect(told[0]).toMatchObject({ err: { next: expect.stringContaining("keys of this daemon") as string } });
    await spaces.stop();
    expect(spaces.check("connection:main.store")).toBeUndefined();
  });

  test("that waits says for what, in the log and by its check, until it is served", async () => {
    let serve = (): void => undefined;
    const spaces = keeper((hooks) => {
      hooks.waiting("the stores are not there", "start their maker");
      return new Promise((resolve) => {
        serve = () => resolve(served());
      });
    });
    await until(() => spaces.check("loop:space:main")?.detail === "the stores are not there");
    expect(spaces.check("loop:space:main")).toMatchObject({ ok: false, next: "start their maker" });
    expect(spaces.said("the space waits")).toHaveLength(1);
    serve();
    await until(() => spaces.check("loop:space:main")?.ok === true);
    await spaces.stop();
  });

  test("of none, where there is no space yet, is told once", async () => {
    let looks = 0;
    const spaces = keeper(() => Promise.resolve(served()), {
      spaces: ["*"],
      discover: () => ((looks += 1) < 3 ? [] : ["late"]),
    });
    await until(() => spaces.check("loop:space:late")?.ok === true);
    expect(spaces.said("there is no space with keys yet")).toHaveLength(1);
    await spaces.stop();
  });
});

describe("a space that is served", () => {
  test("a broker that is away is logged when the wait begins, with its reason, not at each try; its check says it too", async () => {
    let hooks: SpaceHooks | undefined;
    const spaces = keeper((given) => {
      hooks = given;
      return Promise.resolve(served());
    });
    await until(() => spaces.check("loop:space:main")?.ok === true);
    const error = new CotalError("unavailable", "connect: no login within 2000 ms", { next: "look at both logs" });
    for (const failures of [1, 2, 3]) hooks?.onStatus("front", { type: "retrying", failures, waitMs: 1, error });
    expect(spaces.check("connection:main.front")).toMatchObject({ detail: error.message, next: "look at both logs" });
    hooks?.onStatus("front", { type: "up", server: "", version: "" });
    expect(spaces.check("connection:main.front")).toMatchObject({ ok: true });
    hooks?.onStatus("front", { type: "retrying", failures: 1, waitMs: 1, error });
    expect(spaces.said("a connection waits for the broker")).toHaveLength(2);
    expect(spaces.said("a connection waits for the broker")[0]).toMatchObject({ err: { message: error.message } });
    await spaces.stop();
  });

  test("a renewal that fails is told, and tried again sooner than one that did not", async () => {
    let tries = 0;
    const details: unknown[] = [];
    const spaces = keeper(
      () =>
        Promise.resolve(
          served({
            renew: async () => {
              details.push(spaces.check("loop:space:main"));
              await Promise.resolve();
              if ((tries += 1) < 3)
                throw new CotalError("deadline-exceeded", "no answer", { next: "read what is there" });
            },
          }),
        ),
      { renewEvery: { ms: 300, againMs: 1 } },
    );
    await until(() => tries === 3 && spaces.check("loop:space:main")?.ok === true);
    expect(details[1]).toMatchObject({
      ok: false,
      detail: "a renewal failed: no answer",
      next: "it is tried again by itself; if it stays, read the log of this process and of the broker",
    });
    // The next one is a whole interval away again.
    expect(tries).toBe(3);
    await spaces.stop();
  });
});
