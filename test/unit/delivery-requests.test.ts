/** Changes of membership that wait: each is answered, also where nobody waits for the answer any more. */
import { describe, expect, test } from "vitest";
import { createRequests } from "../../services/delivery/fanout/requests.ts";
import { principal } from "../../shared/protocol/base/principals.ts";
import { failure } from "../support/refusal.ts";

const p = principal(`u_${"a".repeat(26)}`, "alice");
const lifecycle = { principal: p, uid: "b".repeat(26), key: "k" };
const change = { kind: "leave", pattern: "general", lifecycle } as const;

describe("a change whose caller gave up", () => {
  test("is waited for by nobody, and ends, or its place would be taken for ever", async () => {
    const requests = createRequests(() => undefined);
    const givingUp = new AbortController();
    const asked = requests.ask(change, givingUp.signal);
    await requests.before(() => Promise.resolve());
    expect(requests.waiting()).toHaveLength(1);
    givingUp.abort();
    expect(await failure(asked)).toMatchObject({ code: "deadline-exceeded" });
    expect(requests.waiting()).toEqual([]);
  });

  test("ends at once if it had given up before it came here", async () => {
    const requests = createRequests(() => undefined);
    expect(await failure(requests.ask(change, AbortSignal.abort()))).toMatchObject({ code: "deadline-exceeded" });
    await requests.before(() => Promise.resolve());
    expect(requests.waiting()).toEqual([]);
  });
});
