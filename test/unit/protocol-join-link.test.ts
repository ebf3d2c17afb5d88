/** Join links (§10): the grammar, and that a secret never stays in what is shown. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { CotalError } from "../../shared/protocol/base/errors.ts";
import { type JoinLink, formatJoinLink, parseJoinLink } from "../../shared/protocol/chat/join-link.ts";
import { channels, spaces } from "../support/arbitraries.ts";
import { nearMissText } from "../support/near-miss.ts";
import { refusal } from "../support/refusal.ts";

const plain = { server: "host:4222", space: "main", tls: false, channels: [] };

/** The link, or `undefined` where it is refused; another error passes through. */
function linkOf(text: string): JoinLink | undefined {
  try {
    return parseJoinLink(text);
  } catch (thrown) {
    if (thrown instanceof CotalError) return undefined;
    throw thrown;
  }
}

describe("W10.01 the grammar", () => {
  test.each<[string, JoinLink]>([
    ["cotal://host/main", plain],
    ["  cotal://host/main\n", plain],
    ["cotal://HOST:4333/main", { ...plain, server: "host:4333" }],
    ["cotals://host/main", { ...plain, tls: true }],
    ["cotal://127.0.0.1:1/main", { ...plain, server: "127.0.0.1:1" }],
    ["cotal://[::1]:4222/main", { ...plain, server: "[::1]:4222" }],
    ["cotal://host/main?channel=a,b.c", { ...plain, channels: ["a", "b.c"] }],
    ["cotal://host/main?channels=a&channel=b,a", { ...plain, channels: ["a", "b"] }],
    ["cotal://host/main?x=1&channel=%23team.%3E", { ...plain, channels: ["team.>"] }],
    ["cotal://host/my%20space", { ...plain, space: "my_space" }],
    ["cotal://tok@host/main", { ...plain, secret: { kind: "token", token: "tok" } }],
    ["cotal://a%40b%2Fc@host/main", { ...plain, secret: { kind: "token", token: "a@b/c" } }],
    ["cotal://u:p:q@host/main", { ...plain, secret: { kind: "password", user: "u", pass: "p:q" } }],
    ["cotal://u:@host/main", { ...plain, secret: { kind: "password", user: "u", pass: "" } }],
    ["cotal://a@b@host/main", { ...plain, secret: { kind: "token", token: "a@b" } }],
  ])("%j", (text, link) => {
    expect(parseJoinLink(text)).toEqual(link);
  });

  test.each([
    "",
    "cotal:",
    "cotal://",
    "cotal://host",
    "cotal:///main",
    "http://host/main",
    "COTAL://host/main",
    "nats://host:4222",
    "cotal://host/main/x",
    "cotal://host/",
    "cotal://host:0/main",
    "cotal://host:65536/main",
    "cotal://host:99999999/main",
    "cotal://host:x/main",
    "cotal://ho st/main",
    "cotal://ho\\st/main",
    "cotal://host\\@evil/main",
    "cotal://host/main#frag",
    "cotal://host/main?channel=a..b",
    "cotal://host/main?channel=%",
    "cotal://host/%zz",
    "cotal://@host/main",
    "cotal://:p@host/main",
    "cotal://[::1/main",
    "cotal://[zz]/main",
    "cotal://[:::::]/main",
    "cotal://-host/main",
    `cotal://host/${"s".repeat(33)}`,
  ])("%j is none", (text) => {
    expect(refusal(() => parseJoinLink(text)).code).toBe("bad-request");
  });
});

describe("W10.01 a secret stands nowhere but in `secret`", () => {
  const SECRET = "hunter2hunter2";
  test.each([
    `cotal://${SECRET}@host/main`,
    `cotal://u:${SECRET}@host/main?channel=a`,
    `cotals://${SECRET}:x@[::1]/main`,
  ])("%s", (text) => {
    const { secret: _, ...rest } = parseJoinLink(text);
    expect(JSON.stringify(rest)).not.toContain(SECRET);
    expect(formatJoinLink(rest)).not.toContain("@");
  });

  test.each([
    `cotal://${SECRET}@host`,
    `cotal://${SECRET}/x@host/main`,
    `cotal://u:${SECRET}#x@host/main`,
    `cotal://%${SECRET}@host/main`,
    `cotal://${SECRET}@host:0/main`,
    `cotal://${SECRET}@ho st/main`,
    `cotal://${SECRET}@[zz]/main`,
    `cotal://${SECRET}@host/main?channel=a..b`,
    `cotal:${SECRET}@host/main`,
    `cotal://host/x@${SECRET}/y`,
    `cotal://host:${SECRET}@/main`,
  ])("the refusal of %s does not repeat it", (text) => {
    const error = refusal(() => parseJoinLink(text));
    expect(`${error.message} ${error.next ?? ""} ${JSON.stringify(error.details)}`).not.toContain(SECRET);
  });
});

test("W10.01 a link without a secret is spelled back into itself", () => {
  const hosts = fc.constantFrom("host:4222", "a.b-c:1", "127.0.0.1:65535", "[::1]:4222");
  fc.assert(
    fc.property(hosts, spaces, fc.boolean(), fc.uniqueArray(channels, { maxLength: 4 }), (server, space, tls, list) => {
      const link = { server, space, tls, channels: list };
      expect(parseJoinLink(formatJoinLink(link))).toEqual(link);
    }),
  );
});

test("W10.01 near misses are refused or have every part in order", () => {
  const seeds = [
    "cotal://tok@host:4222/main?channel=a,b",
    "cotals://u:p@[::1]/main",
    "cotal://host/main?channel=team.%3E",
  ];
  fc.assert(
    fc.property(nearMissText(seeds), (text) => {
      const link = linkOf(text) ?? plain;
      expect(link.server).toMatch(/^(\[[0-9a-f:.]+\]|[a-z0-9][a-z0-9._-]*):[0-9]{1,5}$/);
      expect(link.space).toMatch(/^[A-Za-z0-9_-]{1,32}$/);
      expect(link.channels.filter((one) => !/^[A-Za-z0-9_.*>-]+$/.test(one))).toEqual([]);
    }),
    { numRuns: 3000 },
  );
});
