/**
 * Bytes to JSON, at an edge: a schema behind it judges what they say.
 *
 * Invariant: it never throws, and says nothing of what it could not read.
 */
const utf8 = new TextDecoder("utf-8", { fatal: true });

/** What these bytes say; `undefined`, which no JSON text is and every schema of a row refuses, where they are no UTF-8 JSON. */
export function parseJson(data: Uint8Array): unknown {
  try {
    return JSON.parse(utf8.decode(data));
  } catch {
    return undefined;
  }
}
