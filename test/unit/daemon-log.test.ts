/** The log: one JSON object a line, no secret in any shape or place, and a bound for what repeats. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { type Log, createLog, limitRepeats } from "../../shared/daemon/log.ts";
import { REDACTED, redactText, safeText, scrub } from "../../shared/daemon/redact.ts";
import { CotalError } from "../../shared/protocol/base/errors.ts";
import { newKey } from "../../shared/trust/keys.ts";
import { hostile } from "../support/near-miss.ts";

function capture(level: "trace" | "info" | "silent" = "trace"): {
  log: Log;
  lines: string[];
  objects: () => Record<string, unknown>[];
} {
  const lines: string[] = [];
  const destination = { write: (line: string) => void lines.push(line) };
  const log = createLog({ service: "test", level, destination, now: () => 0 });
  return { log, lines, objects: () => lines.map((line) => JSON.parse(line) as Record<string, unknown>) };
}

const JWT = "eyJ0eXAiOiJKV1QiLCJhbGciOiJlZDI1NTE5LW5rZXkifQ.eyJqdGkiOiJYWFhYWFhYWFhYWFgifQ.c2lnbmF0dXJlLW9mLXRoZS1qd3Q";
const SEEDS = (["operator", "account", "user"] as const).map((kind) => newKey(kind).seedText());
const PASSWORD = "hunter2hunter2";

describe("A.02 a line", () => {
  test("is one JSON object with time, level, service, message and fields", () => {
    const { log, lines, objects } = capture();
    log.info("started", { space: "main", count: 3, nothing: undefined });
    expect(lines[0]).toMatch(/^\{.*\}\n$/);
    expect(objects()[0]).toEqual({
      level: "info",
      time: "1970-01-01T00:00:00.000Z",
      service: "test",
      space: "main",
      count: 3,
      msg: "started",
    });
  });

  test("a child's fields stand on each of its lines", () => {
    const { log, objects } = capture();
    log.child({ space: "main" }).child({ requestId: "r1" }).warn("slow");
    expect(objects()[0]).toMatchObject({ space: "main", requestId: "r1", level: "warn" });
  });

  test("a level below the chosen one is not written, and `silent` writes nothing", () => {
    const { log, lines } = capture("info");
    log.debug("x");
    log.info("y");
    expect(lines).toHaveLength(1);
    const quiet = capture("silent");
    quiet.log.fatal("x");
    expect(quiet.lines).toEqual([]);
  });

  test("there is no interpolation: what looks like a format stays text", () => {
    const { log, objects } = capture();
    log.info("100 %s %o %j", { a: 1 });
    expect(objects()[0]).toMatchObject({ msg: "100 %s %o %j", a: 1 });
  });

  test("a line break in any text does not break the line", () => {
    const { log, lines, objects } = capture();
    log.info("a\nb\u2028c", { "k\n": "v\n{}" });
    expect(lines.join("").trimEnd().split("\n")).toHaveLength(1);
    expect(objects()[0]?.["msg"]).toBe("a\nb\u2028c");
  });
});

describe("A.02 no secret leaves, whatever it stands in", () => {
  /** Every secret, and the shapes in which it could come. */
  const secrets = [JWT, ...SEEDS];
  const places: Readonly<Record<string, (secret: string) => [string, Record<string, unknown>?]>> = {
    "the message": (secret) => [`failed with ${secret}`],
    "a field": (secret) => ["x", { detail: secret }],
    "a nested field": (secret) => ["x", { a: { b: [{ c: secret }] } }],
    "a key": (secret) => ["x", { [secret]: 1 }],
    "an error's message": (secret) => ["x", { err: new Error(`bad ${secret}`) }],
    "an error's cause": (secret) => ["x", { err: new CotalError("internal", "x", { cause: new Error(secret) }) }],
    "an error's details": (secret) => [
      "x",
      { err: new CotalError("internal", "x", { details: [{ kind: "a.b", secret }] }) },
    ],
    "an error's own field": (secret) => ["x", { err: Object.assign(new Error("x"), { url: `nats://${secret}@h` }) }],
    "JSON inside a text": (secret) => ["x", { body: JSON.stringify({ text: JSON.stringify({ value: secret }) }) }],
    "a URL": (secret) => ["x", { url: `nats://user:${secret}@host:4222/` }],
    "a header": (secret) => ["x", { header: `Authorization: Bearer ${secret}` }],
    "a Map": (secret) => ["x", { map: new Map([["k", secret]]) }],
    "a Set": (secret) => ["x", { set: new Set([secret]) }],
    "glued to other text": (secret) => ["x", { text: `aaa${secret}bbb` }],
    "a creds file": (secret) => ["x", { text: `-----BEGIN-----\n${secret}\n------END------` }],
    "an object with toJSON": (secret) => ["x", { odd: { value: secret, toJSON: () => secret } }],
  };

  test.each(Object.entries(places))("%s", (_where, place) => {
    for (const secret of secrets) {
      const { log, lines } = capture();
      const [message, fields] = place(secret);
      log.error(message, fields);
      log.child(fields ?? {}).info("child");
      const said = lines.join("");
      expect(said).toContain("test");
      expect(said).not.toContain(secret);
      // Nor the better half of it.
      expect(said).not.toContain(secret.slice(0, 40));
      for (const line of lines) expect(() => JSON.parse(line) as unknown).not.toThrow();
    }
  });

  test.each([
    "token",
    "Token",
    "authToken",
    "auth_token",
    "seed",
    "bearer",
    "password",
    "passwd",
    "passphrase",
    "secret",
    "clientSecret",
    "authorization",
    "Cookie",
    "set-cookie",
    "privateKey",
    "private_key",
  ])("a field called %s never shows its value", (key) => {
    const { log, lines, objects } = capture();
    log.info("x", { [key]: PASSWORD, nested: { [key]: { deep: [PASSWORD] } } });
    expect(lines.join("")).not.toContain(PASSWORD);
    expect(objects()[0]?.[key]).toBe(REDACTED);
  });

  test.each([
    `token=${PASSWORD}`,
    `?a=1&access_token=${PASSWORD}&b=2`,
    `COTAL_SECRET=${PASSWORD}`,
    `Basic ${Buffer.from(`user:${PASSWORD}`).toString("base64")}`,
    `nats://${PASSWORD}@host`,
    `{"password":"${PASSWORD}"}`,
    JSON.stringify({ body: JSON.stringify({ bot_token: PASSWORD }) }),
  ])("text such as %s is blanked", (text) => {
    expect(redactText(text)).not.toContain(PASSWORD);
    expect(redactText(text)).not.toContain(Buffer.from(`user:${PASSWORD}`).toString("base64"));
    expect(redactText(text)).toContain(REDACTED);
  });

  test("the finished line is blanked once more, with what no field went through", () => {
    const lines: string[] = [];
    const seed = SEEDS[0] ?? "";
    createLog({ service: seed, level: "info", destination: { write: (line) => void lines.push(line) } }).info("x");
    expect(lines.join("")).toContain('"msg":"x"');
    expect(lines.join("")).not.toContain(seed);
  });

  test("what is no secret stays readable", () => {
    for (const text of [
      "cotal.main.chat.u_aaaaaaaaaaaaaaaaaaaaaaaaaa.alice.team.backend",
      "nats://host:4222",
      "bearer credential expired",
      "the token is missing",
      "keyJson.parse is not a function",
      "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
      "UAQGWOEVJKMIO4WXSYOTLARXYOZTCXFK67JASEH6AFFFYK6FOPSKQCAD",
      "user@example.org",
      "SUMMARY OF SEEDS",
    ]) {
      expect(redactText(text)).toBe(text);
    }
    expect(scrub({ secret: false, tokens: null })).toEqual({ secret: false, tokens: null });
  });
});

describe("a value of any shape", () => {
  test("is logged, bounded, and never throws", () => {
    const cyclic: Record<string, unknown> = { a: 1 };
    cyclic["self"] = cyclic;
    const odd = {
      get broken(): never {
        throw new Error("getter");
      },
    };
    const values = [
      cyclic,
      odd,
      1n,
      Symbol("s"),
      () => 1,
      new Date(Number.NaN),
      new Uint8Array(5),
      new ArrayBuffer(7),
      Object.create(null),
      new Proxy({}, {}),
    ];
    for (const value of values) {
      const { log, objects } = capture();
      log.info("x", { value });
      expect(objects()).toHaveLength(1);
    }
    expect(scrub(new Uint8Array(5))).toBe("[5 bytes]");
    expect(scrub(odd)).toEqual({ broken: "[unreadable]" });
    fc.assert(
      fc.property(fc.oneof(hostile, fc.anything()), (value) => {
        const { log, lines } = capture();
        log.info("x", { value });
        expect(JSON.parse(lines[0] ?? "")).toHaveProperty("msg", "x");
        expect(lines[0]?.length).toBeLessThan(1_000_000);
      }),
      { numRuns: 300 },
    );
  });

  test("an error is its name, message, stack and cause, secrets blanked", () => {
    const { log, objects } = capture();
    log.error("x", {
      err: new CotalError("conflict", "the row moved", { next: "again", cause: new TypeError("why") }),
    });
    expect(objects()[0]?.["err"]).toMatchObject({
      type: "CotalError",
      message: "the row moved",
      code: "conflict",
      next: "again",
      cause: { type: "TypeError", message: "why" },
    });
  });

  test("a long text is cut after it was blanked, and says how long it was", () => {
    const text = `${"x".repeat(4080)} ${SEEDS[2] ?? ""}`;
    const safe = safeText(text);
    expect(safe).not.toContain((SEEDS[2] ?? "").slice(0, 12));
    expect(safe.length).toBeLessThan(4200);
    expect(safeText("abcdef", 3)).toBe("abc… (6 characters)");
  });

  test("blanking a finished line leaves it a line of JSON", () => {
    fc.assert(
      fc.property(
        fc.jsonValue(),
        fc.constantFrom(JWT, SEEDS[0] ?? "", `token=${PASSWORD}`, `://${PASSWORD}@`),
        (value, secret) => {
          const text = JSON.stringify({ value, secret, s: `"${secret}"` });
          expect(() => JSON.parse(redactText(text)) as unknown).not.toThrow();
        },
      ),
    );
  });

  test("a million hostile characters are blanked", () => {
    for (const piece of ["eyJ", "eyJ.", "S", "SU", "://", "a@", "token=", '"token":"', "\\", "bearer ", "Basic "]) {
      expect(redactText(piece.repeat(200_000)).length).toBeGreaterThan(0);
    }
  });
});

describe("what repeats", () => {
  function limited(options: { windowMs?: number; maxKeys?: number }) {
    const captured = capture();
    let now = 0;
    const write = limitRepeats(captured.log, { ...options, now: () => now });
    return { ...captured, write, pass: (ms: number) => void (now += ms) };
  }

  test("one line a window and key; the next says how many were left out", () => {
    const { write, objects, pass } = limited({ windowMs: 1000 });
    for (let count = 0; count < 5; count += 1) write("a", "warn", "fault", { n: count });
    write("b", "warn", "other");
    pass(1000);
    write("a", "warn", "fault", { n: 9 });
    expect(objects().map(({ msg, n, omitted }) => [msg, n, omitted])).toEqual([
      ["fault", 0, undefined],
      ["other", undefined, undefined],
      ["fault", 9, 4],
    ]);
  });

  test("keys that a peer invents grow neither the log nor the memory", () => {
    const { write, lines, pass } = limited({ windowMs: 1000, maxKeys: 10 });
    for (let key = 0; key < 5000; key += 1) write(`k${key}`, "warn", "fault");
    expect(lines.length).toBe(11);
    pass(2000);
    write("fresh", "warn", "fault");
    expect(lines.length).toBe(12);
  });
});
