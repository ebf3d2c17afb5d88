import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { kvKey } from "../../shared/protocol/base/broker-subjects.ts";
import { spaceNames } from "../../shared/protocol/base/names.ts";
import { dotForm } from "../../shared/protocol/base/principals.ts";
import { type TestSpace, startSpace } from "../support/space.ts";

let space: TestSpace;
beforeAll(async () => {
  space = await startSpace();
});
afterAll(() => space.stop());
const names = spaceNames("main");
const tryIt = (p: Promise<unknown>) =>
  p.then(
    (v) => JSON.stringify(v).slice(0, 200),
    (e) => `ERR ${e.code ?? ""} ${e.message} outcome=${e.outcome}`,
  );

describe("probe", () => {
  test("A deep presence", async () => {
    const agent = await space.mint({ actor: "deep", subscribe: ["general"] });
    const nc = await space.connect(agent);
    const pid = space.provisioner.pid();
    const body = "[".repeat(16000) + "]".repeat(16000);
    console.log("put", (await nc.request(kvKey(names.bucket.presence, dotForm(agent.view.principal)), body)).string());
    console.log("roster", await tryIt(space.call("roster", {}, { as: agent, deadlineMs: 3000 })));
    await new Promise((r) => setTimeout(r, 1000));
    console.log("space", await tryIt(space.call("space", {}, { as: agent, deadlineMs: 3000 })));
    console.log(
      space.provisioner
        .log()
        .split("\n")
        .slice(-8)
        .map((l) => l.slice(0, 400))
        .join("\n"),
      pid,
    );
    await space.provisioner.kill();
    await space.provisioner.restart();
    expect(1).toBe(1);
  });
  test("C channels", async () => {
    const cw = await space.mint({ actor: "cw", profile: "channel-writer" });
    for (let i = 0; i < 90; i++)
      await space.call(
        "channel-set",
        { channel: `c${i}`, change: { description: "\u0001".repeat(200), instructions: "\u0001".repeat(2000) } },
        { as: cw },
      );
    console.log("channels", await tryIt(space.call("channels", {}, {})));
    expect(1).toBe(1);
  });
  test("E operator deprovisioned", async () => {
    const { owner } = space.operator().view.principal;
    const r = (await space.call("deprovision", { owner, actor: "operator" })) as { uid: string; opId: string };
    console.log("begin", JSON.stringify(r));
    console.log(
      "complete",
      await tryIt(space.call("deprovision-complete", { owner, actor: "operator", uid: r.uid, opId: r.opId })),
    );
    await space.provisioner.kill();
    const restarted = space.provisioner.restart();
    const won = await Promise.race([
      restarted.then(() => "ready"),
      new Promise((r2) => setTimeout(() => r2("not ready in 8s"), 8000)),
    ]);
    console.log(won);
    console.log(
      space.provisioner
        .log()
        .split("\n")
        .slice(-6)
        .map((l) => l.slice(0, 600))
        .join("\n"),
    );
    expect(1).toBe(1);
  });
});
