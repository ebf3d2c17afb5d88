/** What an operator reads of a fault of the service's own: an answer says "its log says more", and so it must. */
import { expect, test } from "vitest";
import { edgeSettings } from "../../services/auth/edge-settings.ts";
import { chatSayings } from "../../services/auth/say-chat.ts";
import { createSparing } from "../../shared/daemon/sparing.ts";
import { authConfig } from "../../services/auth/config.ts";
import { createHealth } from "../../shared/daemon/health.ts";
import { createLog } from "../../shared/daemon/log.ts";
import { createMetrics } from "../../shared/daemon/metrics.ts";
import { ChatSessionPath } from "../../shared/protocol/endpoint/chat-session-shapes.ts";
import { Face } from "../../shared/protocol/endpoint/views.ts";

/** At the level that a daemon has unless told otherwise. */
function made(linesPerMinute = 10) {
  const lines: string[] = [];
  const metrics = createMetrics({ daemon: "auth", processMetrics: false });
  const { values } = authConfig.read({ env: { COTAL_AUTH_DEV_ISSUER: "true" } });
  const log = createLog({
    service: "auth",
    level: values.logLevel,
    destination: { write: (line: string) => void lines.push(line) },
  });
  const some = () => createSparing(linesPerMinute, () => 0);
  const sparing = { refusals: some(), faults: some() };
  const context = { values, metrics, log, health: createHealth() };
  return {
    said: () => lines.map((line) => JSON.parse(line) as Record<string, unknown>),
    edge: edgeSettings(context as unknown as Parameters<typeof edgeSettings>[0], sparing)("main"),
    chat: chatSayings(context, sparing.faults)("main"),
  };
}

const event = { result: "internal", principal: "u_x.alice", milliseconds: 1 };
const cause = new TypeError("a fault of ours");

test("the cause of an exchange that failed is in the log; one that was refused or served leaves no line", () => {
  const { edge, said } = made();
  edge.onExchange({ ...event, result: "ok", face: Face.Public });
  edge.onExchange({ ...event, result: "permission-denied", face: Face.Public });
  expect(said()).toEqual([]);
  edge.onExchange({ ...event, face: Face.Public, cause });
  expect(said()).toEqual([expect.objectContaining({ level: "warn", space: "main", face: "public" })]);
  expect(JSON.stringify(said())).toContain("a fault of ours");
});

test("the cause of a request about a chat session that failed is in the log", () => {
  const { chat, said } = made();
  chat.onChat({ ...event, result: "ok", route: ChatSessionPath.Open });
  expect(said()).toEqual([]);
  chat.onChat({ ...event, route: ChatSessionPath.Open, cause });
  expect(said()).toEqual([expect.objectContaining({ level: "warn", space: "main", route: ChatSessionPath.Open })]);
  expect(JSON.stringify(said())).toContain("a fault of ours");
});

test("a flood of refusals, which anybody can cause, does not hide a fault", () => {
  const { edge, said } = made(3);
  const denied = { kind: "denied", reason: "bad-bearer", line: "no", milliseconds: 1 } as const;
  for (let n = 0; n < 50; n += 1) {
    edge.onCallout({ ...denied, cause: undefined });
    edge.onFace({ route: "/exchange", status: 503 });
  }
  edge.onCallout({ ...denied, reason: "internal", cause });
  edge.onFace({ route: "/exchange", status: 500, cause });
  edge.onExchange({ ...event, face: Face.Public, cause });
  expect(
    said()
      .slice(3)
      .map(({ msg }) => msg),
  ).toEqual(["denied", "the exchange failed", "an exchange failed"]);
});

test("however often it fails, so many lines a minute and no more", () => {
  const { edge, chat, said } = made(3);
  for (let n = 0; n < 50; n += 1) {
    edge.onExchange({ ...event, face: Face.Loopback, cause });
    chat.onChat({ ...event, route: ChatSessionPath.Retire, cause });
  }
  expect(said()).toHaveLength(3);
});
