/** Configuration: every problem at once, no value repeated, and which source wins. */
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, onTestFinished, test } from "vitest";
import { defineConfig, describeConfig, setting } from "../../shared/daemon/config.ts";
import {
  COMMON_SETTINGS,
  line,
  list,
  listenPort,
  brokerAddresses,
  onOff,
  oneOf,
  urlOf,
  wholeNumber,
} from "../../shared/daemon/settings.ts";
import { refusal } from "../support/refusal.ts";

const SECRET = "hunter2hunter2hunter2";

const config = defineConfig("COTAL_TEST_", {
  server: setting({ env: "COTAL_SERVER", schema: urlOf("nats", "tls"), doc: "Where.", example: "nats://b:4222" }),
  port: setting({ env: "COTAL_TEST_PORT", schema: listenPort, default: 7, doc: "Which.", example: "8080" }),
  loud: setting({ env: "COTAL_TEST_LOUD", schema: onOff, default: false, doc: "How.", example: "true" }),
  names: setting({ env: "COTAL_TEST_NAMES", schema: list, default: ["a", "b"], doc: "Who.", example: "x,y" }),
  mode: setting({ env: "COTAL_TEST_MODE", schema: oneOf(["one", "two"]).optional(), doc: "What.", example: "one" }),
});

const good = { COTAL_SERVER: "nats://broker:4222" };

describe("which source wins", () => {
  test("option over environment over default; an empty variable is an unset one", () => {
    const env = { ...good, COTAL_TEST_PORT: "8", COTAL_TEST_LOUD: "" };
    expect(config.read({ env }).values).toEqual({
      server: "nats://broker:4222",
      port: 8,
      loud: false,
      names: ["a", "b"],
      mode: undefined,
    });
    expect(config.read({ env, options: { port: 9, loud: true, mode: undefined } }).values).toMatchObject({
      port: 9,
      loud: true,
    });
  });

  test("what is required and missing is refused, an empty text included", () => {
    for (const env of [{}, { COTAL_SERVER: "" }]) {
      expect(refusal(() => config.read({ env })).message).toContain("COTAL_SERVER: is required");
    }
  });

  test("a misspelled variable of this daemon is told, another's is not", () => {
    const { warnings } = config.read({ env: { ...good, COTAL_TEST_PROT: SECRET, COTAL_OTHER_X: "1", PATH: "/" } });
    expect(warnings).toEqual([
      "COTAL_TEST_PROT is set, but there is no such setting; docs/configuration.md lists them",
    ]);
  });
});

describe("A.02 what is wrong", () => {
  const env = {
    COTAL_SERVER: `http://user:${SECRET}@x`,
    COTAL_TEST_PORT: `99999${SECRET}`,
    COTAL_TEST_LOUD: SECRET,
    COTAL_TEST_NAMES: ` , ${SECRET}`,
    COTAL_TEST_MODE: SECRET,
  };

  test("all of it is told at once, with what was expected and an example", () => {
    const error = refusal(() => config.read({ env }));
    expect([error.code, error.outcome]).toEqual(["bad-request", "not-executed"]);
    expect(error.message).toContain("5 problems");
    expect(error.details.map(({ variable }) => variable)).toEqual(Object.keys(env));
    expect(error.message).toContain(
      "COTAL_TEST_PORT: expected a whole number from 0 to 65535 (for example COTAL_TEST_PORT=8080)",
    );
    expect(error.next).toContain("docs/configuration.md");
  });

  test("and no value is repeated: it may be a secret that stands in the wrong place", () => {
    const error = refusal(() => config.read({ env }));
    expect(
      `${error.message} ${error.next ?? ""} ${JSON.stringify(error.details)} ${String(error.stack)}`,
    ).not.toContain(SECRET);
    fc.assert(
      fc.property(fc.stringMatching(/^[!-~]{12,40}$/), (value) => {
        const said = refusal(() => config.read({ env: { COTAL_SERVER: `x${value}`, COTAL_TEST_PORT: value } }));
        expect(`${said.message}${JSON.stringify(said.details)}`).not.toContain(value);
      }),
    );
  });

  test("two settings of one variable are a fault of the program", () => {
    const one = setting({ env: "COTAL_X", schema: line, doc: "", example: "" });
    expect(refusal(() => defineConfig("COTAL_TEST_", { a: one, b: one })).code).toBe("internal");
  });
});

describe("the kinds of setting", () => {
  test.each<
    [string, { safeParse: (value: unknown) => { success: boolean; data?: unknown } }, [unknown, unknown][], unknown[]]
  >([
    [
      "a whole number",
      wholeNumber(-5, 10),
      [
        ["7", 7],
        [7, 7],
        ["-5", -5],
        ["10", 10],
      ],
      ["", "11", "1.5", "1e1", "0x1", " 7", "٧", null, Number.NaN],
    ],
    [
      "a port",
      listenPort,
      [
        ["0", 0],
        ["65535", 65_535],
      ],
      ["-1", "65536", "http"],
    ],
    [
      "a switch",
      onOff,
      [
        ["true", true],
        ["false", false],
        [true, true],
      ],
      ["1", "yes", "TRUE", "", null],
    ],
    ["a line", line, [["a b", "a b"]], ["", "  ", "a\nb", "a\u0000", 5]],
    [
      "a list",
      list,
      [
        ["a, b", ["a", "b"]],
        [["x"], ["x"]],
      ],
      ["", ",", "a,,b", [], [""], [5]],
    ],
    ["one of", oneOf(["a", "b"]), [["a", "a"]], ["A", "", "c", 0]],
    [
      "addresses of a broker",
      brokerAddresses,
      [
        ["nats://a:4222, tls://b", ["nats://a:4222", "tls://b"]],
        ["127.0.0.1:4222", ["127.0.0.1:4222"]],
        ["[::1]:4222", ["[::1]:4222"]],
        ["broker", ["broker"]],
      ],
      ["", "nats://", "http://a:4222", "a:port", "a b", "nats://a,,nats://b", "nonsense://x"],
    ],
    ["a URL", urlOf("nats"), [["nats://h:1", "nats://h:1"]], ["h:1", "http://h", "", "nats://h:99999", 5]],
  ])("%s", (_what, schema, takes, leaves) => {
    expect(takes.map(([given]) => schema.safeParse(given).data)).toEqual(takes.map(([, value]) => value));
    expect(leaves.filter((given) => schema.safeParse(given).success)).toEqual([]);
  });

  test("every common setting takes its own example and its own default", () => {
    for (const one of Object.values(COMMON_SETTINGS)) {
      expect([one.env, one.schema.safeParse(one.example).success, one.schema.safeParse(one.default).success]).toEqual([
        one.env,
        true,
        true,
      ]);
    }
    expect(COMMON_SETTINGS.drainMs.default).toBe(10_000);
  });
});

describe("a setting that names a secret file", () => {
  const withSecret = defineConfig("COTAL_TEST_", {
    key: setting({ env: "COTAL_TEST_KEY", schema: line, doc: "A key.", example: "/run/key", secretFile: true }),
  });

  function secretFile(mode: number): string {
    const folder = mkdtempSync(join(tmpdir(), "cotal-config-"));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const path = join(folder, "key");
    writeFileSync(path, SECRET);
    chmodSync(path, mode);
    return path;
  }

  test("the value is the path; the content is never held", () => {
    const path = secretFile(0o600);
    const read = withSecret.read({ env: { COTAL_TEST_KEY: path } });
    expect(read).toEqual({ values: { key: path }, warnings: [] });
  });

  test("a file that others can read is used and told", () => {
    const { warnings } = withSecret.read({ env: { COTAL_TEST_KEY: secretFile(0o644) } });
    expect(warnings).toEqual([expect.stringMatching(/COTAL_TEST_KEY names is open to others \(mode 0644\)/)]);
  });

  test("a variable that holds the secret itself is refused without repeating it", () => {
    const { message } = refusal(() => withSecret.read({ env: { COTAL_TEST_KEY: SECRET } }));
    expect(message).toContain("the file that it names does not exist");
    expect(message).not.toContain(SECRET);
  });

  test("the page of documentation says that it is a path", () => {
    expect(describeConfig(withSecret)[0]?.meaning).toBe("A key. The path of a file that holds the secret.");
  });
});

test("the rows of the documentation", () => {
  expect(describeConfig(config).map(({ name, default: fallback }) => [name, fallback])).toEqual([
    ["COTAL_SERVER", "required"],
    ["COTAL_TEST_PORT", "7"],
    ["COTAL_TEST_LOUD", "false"],
    ["COTAL_TEST_NAMES", "a,b"],
    ["COTAL_TEST_MODE", "unset"],
  ]);
});
