/**
 * Takeovers of one serving instance under every order of their steps (§13.1): each read and write of the
 * ledger, and the barrier, is a step that the others may come between; and processes die.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { ServingLedger, ServingParts } from "../../shared/ledger/serving-type.ts";
import type { LedgerStore } from "../../shared/ledger/store.ts";
import { CotalError } from "../../shared/protocol/base/errors.ts";
import { EndpointCredentialRow, EndpointGateRow, endpointKey } from "../../shared/protocol/ledger/endpoint-rows.ts";
import { gateMayMove } from "../../shared/protocol/ledger/gate-machine.ts";
import { type Death, Died, type MemoryLedger, memoryLedger } from "../support/memory-ledger.ts";
import { OWNER } from "../support/plane-parts.ts";
import {
  A,
  B,
  C,
  D,
  ENDPOINT,
  activeOf,
  credentialsOf,
  entryOf,
  gateOf,
  registered,
  served,
  servingOver,
  unborn,
  userKey,
} from "../support/serving-parts.ts";
import { stepped, watched } from "../support/stepped-ledger.ts";

type Outcome = { readonly key: string; readonly epoch: number } | { readonly code: string };

/** Tells also of the write after which the process died. */
function seenWhenDead(store: LedgerStore, judge: (key: string, value: object) => void): LedgerStore {
  const seen = async (key: string, value: object, run: () => Promise<number>): Promise<number> => {
    try {
      return await run();
    } catch (error) {
      if (error instanceof Died && error.message.startsWith("after")) judge(key, value);
      throw error;
    }
  };
  return {
    ...store,
    create: (bucket, key, value) => seen(key, value, () => store.create(bucket, key, value)),
    cas: (bucket, key, value, pinned) => seen(key, value, () => store.cas(bucket, key, value, pinned)),
  };
}

/** One space under test: every gate write is judged the moment it takes place. */
class Scene {
  readonly ledger: MemoryLedger = memoryLedger();
  readonly instanceId: string;
  readonly scheduler: fc.Scheduler;
  readonly faults: string[] = [];
  /** The operation whose barrier resolved since the gate was frozen last. */
  #proved: string | undefined;
  #gate: EndpointGateRow;
  /** Credentials that left: enter resolved. */
  readonly released = new Map<string, number>();

  private constructor(scheduler: fc.Scheduler, ledger: MemoryLedger, instanceId: string) {
    this.scheduler = scheduler;
    this.ledger = ledger;
    this.instanceId = instanceId;
    this.#gate = gateOf(ledger, instanceId);
  }

  static async make(scheduler: fc.Scheduler, opened: boolean): Promise<Scene> {
    const { ledger, instanceId } = await (opened ? served() : unborn());
    const scene = new Scene(scheduler, ledger, instanceId);
    if (opened) scene.released.set(A, 1);
    return scene;
  }

  process(death?: Death): ServingLedger {
    const judge = (key: string, value: object) => this.#judge(key, value);
    const store = watched(seenWhenDead(this.ledger.store(death), judge), ({ key, value }) => judge(key, value));
    return servingOver(stepped(store, this.scheduler), { barrier: this.#barrier });
  }

  readonly #barrier: ServingParts["barrier"] = async (_holder, revoked) => {
    // What is asked for is so already: frozen, and every row that left is revoked and told.
    const before = gateOf(this.ledger, this.instanceId);
    const op = before.state === "open" ? undefined : before.op.opId;
    const told = new Set(revoked.map(({ credentialId }) => credentialId));
    const begun = this.#left();
    await this.scheduler.schedule(Promise.resolve(), "barrier");
    // A caller that was overtaken while it read may ask in vain; what it learns is used by nobody then.
    if (op === undefined) return;
    if (!begun.every((key) => told.has(key))) return;
    const now = gateOf(this.ledger, this.instanceId);
    if (now.state !== "open" && now.op.opId === op) this.#proved = op;
  };

  /** Keys of those that were released at the gate's epoch or before. */
  #left(): string[] {
    return [...this.released].filter(([, epoch]) => epoch <= this.#gate.processEpoch).map(([key]) => key);
  }

  #judge(key: string, value: object): void {
    if (key !== endpointKey.gate(ENDPOINT, this.instanceId)) return;
    const before = this.#gate;
    const now = EndpointGateRow.parse(value);
    this.#gate = now;
    const kind = now.state === "open" ? (before.state === "open" ? undefined : before.op.kind) : now.op.kind;
    const touched = before.state === "open" && now.state === "open";
    if (!touched && (kind === undefined || !gateMayMove(before.state, now.state, kind)))
      this.#fault("a forbidden edge");
    if (now.registrationRevision < before.registrationRevision) this.#fault("the registration went back");
    if (touched || now.state !== "open") {
      if (now.processEpoch !== before.processEpoch) this.#fault("the epoch moved without a reopening");
      if (now.generation !== before.generation) this.#fault("the generation moved without a reopening");
      if (before.state === "open" && now.state === "frozen") this.#proved = undefined;
      return;
    }
    if (now.generation !== before.generation + 1) this.#fault("the generation did not advance by one");
    if (kind === "activation") return;
    if (now.processEpoch !== before.processEpoch + 1) this.#fault("the epoch did not advance by one");
    const op = before.state === "open" ? "" : before.op.opId;
    if (this.#proved !== op) this.#fault("the epoch moved before the barrier had resolved");
    if (now.lastTakeoverOpId !== op) this.#fault("an operation was finished under another id");
    const rows = credentialsOf(this.ledger);
    for (const [credentialId] of this.released) {
      const row = rows.find((one) => one.credentialId === credentialId);
      if (row?.state === "active") this.#fault("the epoch moved over an active credential that had left");
    }
  }

  #fault(what: string): void {
    this.faults.push(what);
  }

  /** A registration by this key; everything but a refusal of ours, or its death, fails the test. */
  async register(key: string, death?: Death): Promise<Outcome> {
    const serving = this.process(death);
    return this.#ended(key, async () => {
      const begun = await serving.begin({
        endpoint: ENDPOINT,
        owner: OWNER,
        userKey: key,
        instanceId: this.instanceId,
      });
      const revision = 10 + begun.epoch;
      await serving.open({ ...begun, endpoint: ENDPOINT, registrationRevision: revision });
      await serving.enter(entryOf(begun, key));
      return begun.epoch;
    });
  }

  async renew(key: string, epoch: number): Promise<Outcome> {
    const serving = this.process();
    return this.#ended(key, async () => {
      await serving.enter({ ...entryOf({ instanceId: this.instanceId, epoch }, key), expires: 2_000_000_000 });
      return epoch;
    });
  }

  async #ended(key: string, run: () => Promise<number>): Promise<Outcome> {
    try {
      const epoch = await run();
      this.released.set(key, epoch);
      return { key, epoch };
    } catch (error) {
      if (error instanceof CotalError) return { code: error.code };
      if (error instanceof Died) return { code: "died" };
      throw error;
    }
  }

  /** Whoever's credential can be renewed now, undisturbed. */
  async current(among: readonly string[]): Promise<string[]> {
    const quiet = servingOver(this.ledger.store());
    const { processEpoch: epoch } = gateOf(this.ledger, this.instanceId);
    const outcomes = among.map(async (key) => {
      try {
        await quiet.enter(entryOf({ instanceId: this.instanceId, epoch }, key));
        return [key];
      } catch (error) {
        if (error instanceof CotalError && error.code === "expired") return [];
        throw error;
      }
    });
    return (await Promise.all(outcomes)).flat();
  }
}

const codesOf = (outcomes: readonly Outcome[]): string[] =>
  outcomes.flatMap((one) => ("code" in one ? [one.code] : []));

describe("W131.07 W131L.08 takeovers in every order", () => {
  test("W131.07 two at once: one of them serves at the current epoch, and everybody else is refused", async () => {
    await fc.assert(
      fc.asyncProperty(fc.scheduler(), fc.boolean(), async (scheduler, opened) => {
        const scene = await Scene.make(scheduler, opened);
        const outcomes = await scheduler.waitFor(
          Promise.all([scene.register(B), scene.register(C), ...(opened ? [scene.renew(A, 1)] : [])]),
        );
        expect(scene.faults).toEqual([]);
        const gate = gateOf(scene.ledger, scene.instanceId);
        expect(gate.state).toBe("open");
        const current = await scene.current([A, B, C]);
        expect(current).toHaveLength(1);
        expect([B, C]).toContain(current[0]);
        expect(activeOf(scene.ledger)).toEqual([`${current[0]?.slice(1, 2)}${gate.processEpoch}`]);
        expect(outcomes).toContainEqual({ key: current[0], epoch: gate.processEpoch });
        expect(codesOf(outcomes).filter((code) => code !== "expired")).toEqual([]);
      }),
      { numRuns: 1500 },
    );
  }, 60_000);

  test("W131.07 W131.15 a first registration that is only slow, against one that takes its instance over", async () => {
    await fc.assert(
      fc.asyncProperty(fc.scheduler(), async (scheduler) => {
        const scene = await Scene.make(scheduler, false);
        const slow = async (): Promise<Outcome> => scene.register(A);
        const outcomes = await scheduler.waitFor(Promise.all([slow(), scene.register(B)]));
        expect(scene.faults).toEqual([]);
        const gate = gateOf(scene.ledger, scene.instanceId);
        const current = await scene.current([A, B]);
        expect(current).toHaveLength(1);
        expect(activeOf(scene.ledger)).toEqual([`${current[0]?.slice(1, 2)}${gate.processEpoch}`]);
        expect(codesOf(outcomes).filter((code) => code !== "expired" && code !== "already-exists")).toEqual([]);
      }),
      { numRuns: 1000 },
    );
  }, 60_000);

  test("W131.07 W131.15 a retry beside its own request: one epoch, one row, and both are told the same", async () => {
    await fc.assert(
      fc.asyncProperty(fc.scheduler(), fc.boolean(), async (scheduler, opened) => {
        const scene = await Scene.make(scheduler, opened);
        const key = opened ? B : A;
        const outcomes = await scheduler.waitFor(Promise.all([scene.register(key), scene.register(key)]));
        const epoch = opened ? 2 : 1;
        expect(scene.faults).toEqual([]);
        expect(outcomes).toEqual([
          { key, epoch },
          { key, epoch },
        ]);
        expect(activeOf(scene.ledger)).toEqual([`${key.slice(1, 2)}${epoch}`]);
        expect(gateOf(scene.ledger, scene.instanceId)).toMatchObject({ state: "open", generation: epoch });
      }),
      { numRuns: 1000 },
    );
  }, 60_000);

  test("W131.07 W131L.01 with deaths: nothing older stays active once the next one serves", async () => {
    const deaths = fc.record({
      at: fc.integer({ min: 1, max: 8 }),
      when: fc.constantFrom("before" as const, "after" as const),
    });
    await fc.assert(
      fc.asyncProperty(fc.scheduler(), fc.boolean(), deaths, deaths, async (scheduler, opened, first, second) => {
        const scene = await Scene.make(scheduler, opened);
        const outcomes = await scheduler.waitFor(
          Promise.all([
            scene.register(B, first),
            scene.register(C, second),
            scene.register(D),
            ...(opened ? [scene.renew(A, 1)] : []),
          ]),
        );
        expect(scene.faults).toEqual([]);
        expect(codesOf(outcomes).filter((code) => code !== "expired" && code !== "died")).toEqual([]);
        // Whatever stands still is finished by whoever comes next.
        const last = userKey("E");
        const begun = await registered(servingOver(scene.ledger.store()), {
          userKey: last,
          instanceId: scene.instanceId,
        });
        expect(activeOf(scene.ledger)).toEqual([`E${begun.epoch}`]);
        expect(await scene.current([A, B, C, D, last])).toEqual([last]);
        for (const row of credentialsOf(scene.ledger)) {
          expect(EndpointCredentialRow.parse(row).holderPrincipal).toBe(`${OWNER}.svc_${scene.instanceId}`);
        }
      }),
      { numRuns: 1500 },
    );
  }, 60_000);
});
