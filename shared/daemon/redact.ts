/**
 * The guard between what we write for people (logs, health bodies) and what must stay secret.
 *
 * Two layers, because each alone has a hole. Keys: a field whose name says that it holds a secret
 * is blanked with whatever it holds (`scrub`). Shapes: text that looks like a secret is blanked
 * wherever it stands, also inside a message, a stack or a URL (`redactText`).
 *
 * Invariants
 * 1. `redactText` may run over a finished JSON line: no rule consumes or adds a quote or a backslash.
 * 2. Every rule is linear in the length of the text: a hostile line costs no more than a long one.
 * 3. Blank first, cut afterwards: half a token is still a leak.
 */

export const REDACTED = "[redacted]";

/** Names of fields that never show their value. `tokens`, `botToken` and `token_digest` match too. */
const SECRET_KEY = /token|seed|bearer|secret|passw|passphrase|authorization|cookie|private_?key/i;

const MAX_TEXT = 4096;
const MAX_DEPTH = 6;
const MAX_ENTRIES = 64;

/** Characters of a JWT and the dots between its parts; the replacer below looks inside. */
const DOTTED_RUN = /[\w.-]{5,}/g;

type Rule = { readonly shape: RegExp; readonly by: string | ((match: string) => string) };

const RULES: readonly Rule[] = [
  { shape: DOTTED_RUN, by: blankJwt },
  // An nkey seed of any kind. No look-behind: a seed that is glued to other text is still a seed.
  { shape: /S[OAUXNC][A-Z2-7]{50,}/g, by: REDACTED },
  // The value after the HTTP scheme; 16 characters, so that "bearer credential expired" stays readable.
  { shape: /(bearer|basic)(\s{1,4})[\w.~+/=-]{16,}/gi, by: `$1$2${REDACTED}` },
  // The userinfo of a URL: a password, or the bare token that the broker's URLs may carry.
  { shape: /:\/\/[^\s/@"\\]{1,4096}@/g, by: `://${REDACTED}@` },
  // key=value, as in a query string or an environment listing.
  { shape: /((?:token|seed|bearer|secret|passw(?:or)?d)=)[^\s"\\&;,]+/gi, by: `$1${REDACTED}` },
  // JSON inside a string, at any depth of escaping.
  {
    shape: /((?:token|seed|bearer|secret|passw(?:or)?d)\w{0,32}\\{0,8}"\s{0,4}:\s{0,4}\\{0,8}")[^"\\]+/gi,
    by: `$1${REDACTED}`,
  },
];

/** Blanks everything in a text that has the shape of a secret. */
export function redactText(text: string): string {
  let out = text;
  for (const { shape, by } of RULES) {
    out = typeof by === "string" ? out.replace(shape, by) : out.replace(shape, by);
  }
  return out;
}

/** A text made safe and short: blanked first, then cut (invariant 3). */
export function safeText(text: string, max = MAX_TEXT): string {
  const safe = redactText(text);
  return safe.length <= max ? safe : `${safe.slice(0, max)}… (${safe.length} characters)`;
}

/**
 * A copy of any value that is fit for a log line: secrets blanked by key and by shape, binary by its
 * size only, depth and width bounded, no cycles, and no getter's fault thrown on.
 */
export function scrub(value: unknown, depth = 0): unknown {
  switch (typeof value) {
    case "string":
      return safeText(value);
    case "number":
    case "boolean":
    case "undefined":
      return value;
    case "bigint":
      return String(value);
    case "object":
      return value === null ? null : scrubObject(value, depth);
    default:
      return `[${typeof value}]`;
  }
}

function scrubObject(value: object, depth: number): unknown {
  if (depth >= MAX_DEPTH) return "[deeper]";
  if (ArrayBuffer.isView(value)) return `[${value.byteLength} bytes]`;
  if (value instanceof ArrayBuffer) return `[${value.byteLength} bytes]`;
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? "[no date]" : value.toISOString();
  if (Array.isArray(value)) return value.slice(0, MAX_ENTRIES).map((entry) => scrub(entry, depth + 1));
  if (value instanceof Map) return scrubEntries([...value].slice(0, MAX_ENTRIES), depth);
  if (value instanceof Set) return [...value].slice(0, MAX_ENTRIES).map((entry) => scrub(entry, depth + 1));
  const own = scrubEntries(ownEntries(value), depth);
  if (!(value instanceof Error)) return own;
  // The three fields that matter most in an Error are not enumerable.
  return {
    type: value.name,
    message: safeText(value.message),
    ...own,
    ...(value.stack === undefined ? {} : { stack: safeText(value.stack) }),
    ...(value.cause === undefined ? {} : { cause: scrub(value.cause, depth + 1) }),
  };
}

function ownEntries(value: object): [string, unknown][] {
  return Object.keys(value)
    .slice(0, MAX_ENTRIES)
    .map((key) => {
      try {
        return [key, Reflect.get(value, key)];
      } catch {
        return [key, "[unreadable]"];
      }
    });
}

function scrubEntries(entries: readonly (readonly [unknown, unknown])[], depth: number): Record<string, unknown> {
  const out: Record<string, unknown> = {};
  for (const [rawKey, entry] of entries) {
    const key = safeText(String(rawKey), 128);
    // One bit is no secret, and `secret: false` is worth reading.
    const open = entry === undefined || entry === null || typeof entry === "boolean";
    out[key] = SECRET_KEY.test(key) && !open ? REDACTED : scrub(entry, depth + 1);
  }
  return out;
}

/** A JWT is two or three base64url parts that begin with `eyJ` (`{"` in base64url). */
function blankJwt(run: string): string {
  const at = run.indexOf("eyJ");
  if (at < 0) return run;
  const parts = run.slice(at).split(".");
  // Two parts only are a token that somebody cut; the length keeps words such as `keyJson.parse`.
  const cut = parts.length === 2 && (parts[0]?.length ?? 0) >= 12;
  return parts.length >= 3 || cut ? `${run.slice(0, at)}${REDACTED}` : run;
}
