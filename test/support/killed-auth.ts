/**
 * A space whose auth service is killed with SIGKILL after each durable write of an operation, one after another, until a
 * run of it has no such write left (`durable-steps.ts` counts them, as the wire sees them).
 */
import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createWriter } from "../../shared/broker/write.ts";
import { brokerLedgerStore } from "../../shared/ledger/broker-store.ts";
import type { LedgerBucket, LedgerStore } from "../../shared/ledger/store.ts";
import { type AuthService, startAuthService } from "./auth-service.ts";
import { eventually } from "./cli.ts";
import { type TestSpace, startSpace } from "./space.ts";
import { expectWholeLedger } from "./whole-ledger.ts";

/** Rows of the ledger and of read lists, and durables made and removed. */
const WRITES = String.raw`^\$KV\.cotal_(auth|records|acl|sessions)_|^\$JS\.API\.CONSUMER\.(CREATE|DELETE)\.(DM|DLV)_`;
const PATIENT_MS = 60_000;

export type Killed<Of, Got> = {
  /** What each run is made on, before anything counts. */
  readonly on: (at: number) => Promise<Of>;
  readonly operation: (of: Of) => Promise<Got>;
  /** Right after the death; what is stored has been found whole. */
  readonly dead: (of: Of, isDead: boolean) => Promise<void>;
  /** Another process serves. */
  readonly after: (of: Of) => Promise<void>;
};

export type KilledAuth = {
  readonly space: TestSpace;
  readonly auth: AuthService;
  readonly ledger: LedgerStore;
  /** `undefined` where there is none. */
  readonly value: (bucket: LedgerBucket, key: string) => Promise<unknown>;
  /** How many writes the operation has; it died before the first, and after every one. */
  readonly atEveryWrite: <Of, Got>(killed: Killed<Of, Got>) => Promise<number>;
  readonly stop: () => Promise<void>;
};

export async function startKilledAuth(env: Readonly<Record<string, string>> = {}): Promise<KilledAuth> {
  const folder = mkdtempSync(join(tmpdir(), "cotal-killed-"));
  const order = join(folder, "order");
  const space = await startSpace({ auth: "user", delivery: false });
  const nc = await space.store();
  const ledger = brokerLedgerStore(nc, createWriter({ nc }), "main");
  const auth = await startAuthService(space, {
    waitMs: PATIENT_MS,
    env: {
      ...env,
      NODE_OPTIONS: `--import=${join(import.meta.dirname, "durable-steps.ts")}`,
      COTAL_TEST_DURABLE: WRITES,
      COTAL_TEST_DIE_FILE: order,
    },
  });
  let starts = 0;
  let whole = 1;
  const serves = async (): Promise<void> => {
    starts += 1;
    const held = () => auth.log().split("this process holds the authority plane").length - 1;
    await eventually(held, (times) => times >= starts, PATIENT_MS);
  };
  await serves();

  const dies = async (ask: () => Promise<unknown>, when: string): Promise<boolean> => {
    writeFileSync(order, when);
    process.kill(auth.pid(), "SIGUSR2");
    await eventually(
      () => existsSync(order),
      (isThere) => !isThere,
      PATIENT_MS,
    );
    const pid = auth.pid();
    const gone = (): Promise<boolean> =>
      eventually(
        () => !isRunning(pid),
        (isGone) => isGone,
        PATIENT_MS,
      );
    let isDone = false;
    const asked = ask().then(
      () => void (isDone = true),
      async (thrown: unknown) => {
        // Who asks may hear of the death before we see it; a refusal by one that lives is a fault.
        if (!(await gone())) throw thrown;
      },
    );
    await Promise.race([asked, gone()]);
    if (!isDone && isRunning(pid)) throw new Error(`neither done nor dead (${when})`);
    // It may have been answered on the way: then it is done.
    return !isDone;
  };

  return {
    space,
    auth,
    ledger,
    value: async (bucket, key) => {
      const row = await ledger.read(bucket, key);
      return row.kind === "value" ? row.value : undefined;
    },
    atEveryWrite: async ({ on, operation, dead, after }) => {
      for (let at = 0; ; at += 1) {
        const of = await on(at);
        const isDead = await dies(() => operation(of), at === 0 ? "before:1" : `after:${at}`);
        // What is counted no more must not die of its other writes.
        if (!isDead) await auth.kill();
        whole = await expectWholeLedger(nc, whole);
        await dead(of, isDead);
        await auth.restart();
        await serves();
        await after(of);
        if (!isDead) return at - 1;
      }
    },
    stop: async () => {
      await auth.kill();
      await space.stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}
