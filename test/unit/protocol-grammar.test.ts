/** Every pattern of the grammar file: what it takes, what it leaves, and that it stays linear. */
import { describe, expect, test } from "vitest";
import * as grammar from "../../shared/protocol/base/grammar.ts";

const uid = "abcdefghijklmnopqrstuvwxyz";

type Row = { readonly takes: readonly string[]; readonly leaves: readonly string[] };

/** Every pattern that decides about a whole token. `""` and a newline at the end are refused by all. */
const TOKENS: Readonly<Record<string, Row>> = {
  PRINCIPAL_TOKEN: { takes: ["a", "A_9", "a".repeat(64)], leaves: ["a-b", "a.b", "é", "*", "a".repeat(65)] },
  OPERATOR_NKEY: {
    takes: [`O${"A2".repeat(27)}Z`],
    leaves: [`A${"A".repeat(55)}`, `O${"A".repeat(54)}`, `O${"a".repeat(55)}`, `O${"1".repeat(55)}`],
  },
  OWNER_TOKEN: {
    takes: ["local", `u_${"a2".repeat(13)}`],
    leaves: ["locale", `u_${"a".repeat(25)}`, `u_${"a1".repeat(13)}`],
  },
  DERIVED_OWNER_TOKEN: {
    takes: [`u_${"z7".repeat(13)}`],
    leaves: ["local", `U_${"a".repeat(26)}`, `u_${"A".repeat(26)}`],
  },
  OWNER_LABEL: { takes: ["acme", "a.b@c-d_e", "a".repeat(64)], leaves: [".a", "a b", "a\u0000b", "a".repeat(65)] },
  CHAT_ACTOR: {
    takes: [`chat_${"z7".repeat(13)}`],
    leaves: ["chat_", `chat_${"a".repeat(25)}`, `chat_${"A".repeat(26)}`, `xchat_${"a".repeat(26)}`],
  },
  HOLDER_SECRET: {
    takes: ["aZ9_-".repeat(9), "a".repeat(128)],
    leaves: ["a".repeat(42), "a".repeat(129), `${"a".repeat(43)}.`, `${"a".repeat(43)}=`],
  },
  HOLDER_HASH: {
    takes: ["a9".repeat(32)],
    leaves: ["a".repeat(63), "a".repeat(65), "A".repeat(64), "g".repeat(64)],
  },
  ROOT_CREDENTIAL_ID: {
    takes: [`r_${"z7".repeat(13)}`],
    leaves: [`r_${"a".repeat(25)}`, `r_${"A".repeat(26)}`, `u_${"a".repeat(26)}`, `r_${"a".repeat(26)}.x`],
  },
  ROLE_TOKEN: { takes: ["re-view_1", "a".repeat(64)], leaves: ["re view", "*", "a.b", "é", "a".repeat(65)] },
  LIFECYCLE_UID: {
    takes: [uid, `${uid}012345`],
    leaves: [uid.slice(1), `${uid}0123456`, uid.toUpperCase(), `${uid}_`],
  },
  REQUEST_NONCE: {
    takes: ["a".repeat(22), "_-".repeat(32)],
    leaves: ["a".repeat(21), "a".repeat(65), `${"a".repeat(22)}.`],
  },
  INBOX_NONCE: {
    takes: ["aZ9".repeat(8)],
    leaves: ["a".repeat(21), "a".repeat(65), `${"a".repeat(22)}_`, `${"a".repeat(22)}*`],
  },
  CONN_ID: {
    takes: [`${uid}_${"a".repeat(22)}`],
    leaves: [`${uid}_`, `_${"a".repeat(22)}`, `${uid}.${"a".repeat(22)}`],
  },
  COMMAND_TOKEN: {
    takes: ["a", "dm-history", "a".repeat(32)],
    leaves: ["Describe", "a_b", "a.b", "*", "a".repeat(33)],
  },
  ENDPOINT_LABEL: { takes: ["a", "a-b", "0", "a".repeat(63)], leaves: ["-a", "a-", "A", "a_b", "a.b", "a".repeat(64)] },
  ID_TOKEN: { takes: ["a", "A-_9", "a".repeat(64)], leaves: ["a b", "a.b", "a".repeat(65)] },
  GENERATION: {
    takes: ["0123456789abcdef".repeat(2)],
    leaves: ["0123456789abcdef", "0123456789ABCDEF".repeat(2), "g".repeat(32), "0".repeat(33)],
  },
  WHOLE_NUMBER: { takes: ["0", "7", "9007199254740991"], leaves: ["00", "01", "-1", "1.5", "1e3", "1".repeat(17)] },
  ERROR_CODE: { takes: ["conflict", "com.acme.no-funds", "a".repeat(64)], leaves: ["a b", "a_b", "é", "a".repeat(65)] },
  SPACE_TOKEN: { takes: ["main", "my-space_2", "a".repeat(32)], leaves: ["my space", "a.b", ">", "a".repeat(33)] },
  CHANNEL_SEGMENT: { takes: ["a", "A-_9"], leaves: ["a.b", "*", ">", "a b", "é"] },
  REPLAY_WINDOW: {
    takes: ["0s", "30m", "24h", "7d", "999999999d"],
    leaves: ["7", "d", "7w", "-1d", "1.5h", "7 d", "1000000000s"],
  },
  DIGEST: {
    takes: [`sha256:${"0a".repeat(32)}`],
    leaves: [`sha256:${"0A".repeat(32)}`, `sha256:${"0".repeat(63)}`, "0".repeat(64), `sha512:${"0".repeat(64)}`],
  },
  REVERSE_DNS: {
    takes: ["com.acme", "ai.cotal.x", "com.acme.Snap-Shot.v2"],
    leaves: ["snapshot", ".com", "com.", "Com.acme", "com..x", "com.-x", "com.x-", "com.a_b"],
  },
  USER_NKEY: {
    takes: [`U${"A2".repeat(27)}A`],
    leaves: [`A${"A2".repeat(27)}A`, `U${"A".repeat(54)}`, `U${"a".repeat(55)}`],
  },
  ACCOUNT_NKEY: {
    takes: [`A${"A2".repeat(27)}A`],
    leaves: [`U${"A2".repeat(27)}A`, `A${"A".repeat(54)}`, `A${"A".repeat(56)}`, `A${"a".repeat(55)}`],
  },
  SERVER_NKEY: {
    takes: [`N${"A2".repeat(27)}A`],
    leaves: [`U${"A2".repeat(27)}A`, `N${"A".repeat(54)}`, `N${"A".repeat(56)}`, `N${"a".repeat(55)}`],
  },
  CURVE_NKEY: {
    takes: [`X${"A2".repeat(27)}A`],
    leaves: [`U${"A2".repeat(27)}A`, `X${"A".repeat(54)}`, `X${"A".repeat(56)}`, `X${"a".repeat(55)}`],
  },
};

const patterns = Object.entries(grammar).flatMap(([name, value]) =>
  value instanceof RegExp ? [{ name, pattern: value }] : [],
);

function patternOf(name: string): RegExp {
  const found = patterns.find((one) => one.name === name);
  if (found === undefined) throw new Error(`there is no pattern ${name}`);
  return found.pattern;
}

describe("W3.01 W3.06 W2.02 tokens", () => {
  test.each(Object.entries(TOKENS))("%s", (name, { takes, leaves }) => {
    const pattern = patternOf(name);
    expect(takes.filter((text) => !pattern.test(text))).toEqual([]);
    const never = ["", "\n", " ", ...takes.flatMap((text) => [`${text}\n`, `\n${text}`, ` ${text}`, `${text} `])];
    expect([...leaves, ...never].filter((text) => pattern.test(text))).toEqual([]);
  });

  test("the table names every pattern that decides about a token", () => {
    const others = ["NOT_ONE_LINE", "UNSAFE_CHARACTER"];
    expect(patterns.map(({ name }) => name).toSorted()).toEqual([...Object.keys(TOKENS), ...others].toSorted());
  });
});

test("no pattern keeps a position between two questions", () => {
  // `UNSAFE_CHARACTER` is for `replace` only, which starts at 0.
  expect(patterns.filter(({ pattern }) => pattern.global || pattern.sticky).map(({ name }) => name)).toEqual([
    "UNSAFE_CHARACTER",
  ]);
});

test("a million characters are answered, whatever they are", () => {
  const long = ["a", "a.", "a-", "u_a", "sha256:0", "0", "-", "A2", "com.a"].map((piece) => piece.repeat(200_000));
  for (const { pattern } of patterns) {
    for (const text of long) expect(typeof `${text}\u0000`.search(pattern)).toBe("number");
  }
});

test("W6.11 what is no single line: controls and the separators that some terminals break at", () => {
  const broken = ["\u0000", "\t", "\n", "\r", "\u001b[2J", "\u007f", "\u0085", "\u2028", "\u2029"];
  expect(broken.filter((text) => !grammar.NOT_ONE_LINE.test(`a${text}b`))).toEqual([]);
  expect(["a b", "é", "😀", "a\u00a0b", "名前"].filter((text) => grammar.NOT_ONE_LINE.test(text))).toEqual([]);
});
