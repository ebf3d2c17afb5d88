/** Principals: one identity, two spellings, and refusal where another token is rewritten. */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { CONN_ID, DERIVED_OWNER_TOKEN } from "../../shared/protocol/base/grammar.ts";
import { inboxGrant, inboxPrefix } from "../../shared/protocol/base/broker-subjects.ts";
import {
  OPEN_OWNER,
  connId,
  dashForm,
  dotForm,
  drawLifecycleUid,
  drawNonce,
  encodeToken,
  isLifecycleUid,
  isOwnerToken,
  parseDashForm,
  parseDotForm,
  principal,
  samePrincipal,
} from "../../shared/protocol/base/principals.ts";
import { dlvDurable, dmDurable } from "../../shared/protocol/base/names.ts";
import { parseSubject, spaceSubjects } from "../../shared/protocol/base/subjects.ts";
import { lifecycleUids, principals } from "../support/arbitraries.ts";
import { refusal } from "../support/refusal.ts";

const tokens = fc.string({
  unit: fc.constantFrom(..."abcXYZ019_".split("")),
  minLength: 1,
  maxLength: 64,
});

test("W2.03 dot-form and dash-form round-trip for every pair of tokens", () => {
  fc.assert(
    fc.property(tokens, tokens, (owner, actor) => {
      const p = principal(owner, actor);
      expect(parseDotForm(dotForm(p))).toEqual({ owner, actor });
      expect(parseDashForm(dashForm(p))).toEqual({ owner, actor });
      expect(parseDotForm(dashForm(p))).toBeUndefined();
      expect(parseDashForm(dotForm(p))).toBeUndefined();
    }),
  );
});

test("W2.03 two principals never share a spelling", () => {
  fc.assert(
    fc.property(tokens, tokens, tokens, tokens, (o1, a1, o2, a2) => {
      const [one, two] = [principal(o1, a1), principal(o2, a2)];
      const same = samePrincipal(one, two);
      expect(dotForm(one) === dotForm(two)).toBe(same);
      expect(dashForm(one) === dashForm(two)).toBe(same);
    }),
  );
});

test("W2.03 subject sender, presence key and durable names spell one principal", () => {
  fc.assert(
    fc.property(principals, lifecycleUids, (p, uid) => {
      const id = dotForm(p);
      expect(parseSubject(spaceSubjects("main").chat(p, "general"))?.sender).toBe(id);
      expect(dmDurable(p, uid)).toBe(`dm_${id.replace(".", "-")}-${uid}`);
      expect(dlvDurable(p, uid)).toBe(`dlv_${id.replace(".", "-")}-${uid}`);
    }),
  );
});

describe("W2.03 W3.02 a principal token is refused, never rewritten", () => {
  test.each(["", "a b", "a-b", "a.b", "*", ">", "ä", "a\n", "a".repeat(65), "a/b", "\u0000"])("%j", (token) => {
    expect(refusal(() => principal(token, "ok")).code).toBe("bad-request");
    expect(refusal(() => principal("ok", token)).code).toBe("bad-request");
    expect(parseDotForm(`ok.${token}`)).toBeUndefined();
    expect(parseDashForm(`${token}-ok`)).toBeUndefined();
  });

  test("a dot-form has two tokens", () => {
    expect(["", ".", "a", "a.", ".a", "a.b.c", "a..b"].filter(parseDotForm)).toEqual([]);
    expect(["", "-", "a", "a-", "-a", "a-b-c", "a--b"].filter(parseDashForm)).toEqual([]);
  });
});

describe("W2.02 owner tokens", () => {
  test("a derived token and `local` are owners", () => {
    expect(isOwnerToken(OPEN_OWNER)).toBe(true);
    expect(isOwnerToken("u_abcdefghijklmnopqrstuvwx27")).toBe(true);
    expect(DERIVED_OWNER_TOKEN.test("local")).toBe(false);
    expect(DERIVED_OWNER_TOKEN.test("u_abcdefghijklmnopqrstuvwx27")).toBe(true);
  });

  test.each([
    "",
    "Local",
    "local ",
    "local\n",
    "u_",
    "u_aaaaaaaaaaaaaaaaaaaaaaaaa",
    "u_aaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "u_aaaaaaaaaaaaaaaaaaaaaaaaa1",
    "u_aaaaaaaaaaaaaaaaaaaaaaaaaA",
    "U_aaaaaaaaaaaaaaaaaaaaaaaaaa",
    "v_aaaaaaaaaaaaaaaaaaaaaaaaaa",
    "UAQGWOEVJKMIO4WXSYOTLARXYOZTCXFK67JASEH6AFFFYK6FOPSKQCAD",
  ])("%j is none", (token) => {
    expect(isOwnerToken(token)).toBe(false);
  });
});

describe("drawn tokens", () => {
  const counting = (count: number) => Uint8Array.from({ length: count }, (_, index) => index * 37);

  test("a lifecycle UID and a nonce have 26 characters and all the bits they were given", () => {
    expect(isLifecycleUid(drawLifecycleUid(counting))).toBe(true);
    expect(drawNonce(counting)).toHaveLength(26);
    const first = drawLifecycleUid(() => new Uint8Array(17));
    // Flipping any one of the 130 bits that are used changes the token.
    const seen = new Set([first]);
    for (let bit = 0; bit < 130; bit += 1) {
      const bytes = new Uint8Array(17);
      bytes[bit >> 3] = 0x80 >> (bit & 7);
      seen.add(drawLifecycleUid(() => bytes));
    }
    expect(seen.size).toBe(131);
  });

  test("too few bytes are refused, not padded", () => {
    expect(refusal(() => encodeToken(new Uint8Array(16), 26)).code).toBe("bad-request");
    expect(refusal(() => drawLifecycleUid(() => new Uint8Array(0))).code).toBe("bad-request");
  });
});

describe("the connection id (decision H61)", () => {
  const uid = "abcdefghijklmnopqrstuvwxyz";
  const nonce = "0123456789abcdefABCDEF";

  test("it is the UID and the nonce, and scopes the inbox", () => {
    expect(connId(uid, nonce)).toBe(`${uid}_${nonce}`);
    expect(CONN_ID.test(connId(uid, nonce))).toBe(true);
    expect(inboxPrefix(uid, nonce)).toBe(`_INBOX_${uid}_${nonce}`);
    expect(inboxGrant(uid, nonce)).toBe(`_INBOX_${uid}_${nonce}.>`);
  });

  test.each(["", "short", "*", "a.b".repeat(8), "x_".repeat(12), "0123456789abcdefABCDE\n", "-".repeat(22)])(
    "a nonce %j is refused: it could widen the grant",
    (bad) => {
      expect(refusal(() => connId(uid, bad)).code).toBe("bad-request");
      expect(CONN_ID.test(`${uid}_${bad}`)).toBe(false);
    },
  );

  test.each(["", "*", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abc", "a.b".repeat(9)])("a UID %j is refused", (bad) => {
    expect(refusal(() => connId(bad, nonce)).code).toBe("bad-request");
    expect(isLifecycleUid(bad)).toBe(false);
  });
});
