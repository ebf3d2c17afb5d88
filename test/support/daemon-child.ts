/** A daemon of its own for the tests of the lifecycle: what it does is named by its one argument. */
import { setTimeout as sleep } from "node:timers/promises";
import { defineConfig, setting } from "../../shared/daemon/config.ts";
import { type Context, type Running, runDaemon } from "../../shared/daemon/lifecycle.ts";
import { COMMON_SETTINGS, type CommonValues, line } from "../../shared/daemon/settings.ts";
import { CotalError } from "../../shared/protocol/base/errors.ts";

const config = defineConfig("COTAL_CHILD_", {
  ...COMMON_SETTINGS,
  greeting: setting({ env: "COTAL_CHILD_GREETING", schema: line, default: "hello", doc: "A greeting.", example: "hi" }),
});

type Act = (context: Context<CommonValues>) => Promise<Running>;

const working = ({ log, releasers }: Context<CommonValues>, drain: Running["drain"] = () => sleep(50)): Running => {
  releasers.push("connection", () => log.info("the connection is closed"));
  return {
    stopIntake: () => log.info("intake stopped"),
    drain: async (giveUp) => {
      await drain(giveUp);
      log.info("drained");
    },
  };
};

const ACTS: Readonly<Record<string, Act>> = {
  plain: async (context) => working(context),
  /** Never finishes what is in flight. */
  stuck: async (context) => working(context, () => new Promise(() => undefined)),
  /** A background loop that works until it is told to stop. */
  loop: async (context) => {
    context.keep("watch", async ({ stopping, ok }) => {
      ok();
      await new Promise((end) => stopping.addEventListener("abort", end));
      context.log.info("the loop ended");
      return { kind: "done" };
    });
    return working(context);
  },
  fatal: async (context) => {
    context.keep("watch", async () => ({ kind: "fatal", cause: new CotalError("permission-denied", "revoked") }));
    return working(context);
  },
  uncaught: async (context) => {
    setTimeout(() => {
      throw new Error("nobody caught this");
    }, 10);
    return working(context);
  },
  rejection: async (context) => {
    setTimeout(() => void Promise.reject(new Error("nobody handled this")), 10);
    return working(context);
  },
  "fails to start": async ({ log, releasers }) => {
    releasers.push("connection", () => log.info("the connection is closed"));
    throw new CotalError("unavailable", "the broker is away", { next: "start it" });
  },
  "starts for ever": async ({ stopping, log }) => {
    await new Promise((end) => stopping.addEventListener("abort", end));
    log.info("the start gave up");
    throw new CotalError("cancelled", "the start was cancelled");
  },
  ends: async (context) => {
    setTimeout(() => context.end(new CotalError("failed-precondition", "the lease is lost")), 10);
    return working(context);
  },
};

const act = ACTS[process.argv[2] ?? ""];
if (act === undefined) throw new Error(`one of ${Object.keys(ACTS).join(", ")}`);
await runDaemon({ name: "child", config, start: act });
