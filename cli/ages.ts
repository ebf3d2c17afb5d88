/** Times for a person who reads: how long ago, and when; for a program: RFC 3339. */

const UNITS = [
  ["d", 86_400],
  ["h", 3600],
  ["m", 60],
] as const;

/** `3m`, of milliseconds; the broker's two times may differ a little, and a negative age is none. */
export function ageOf(milliseconds: number): string {
  const seconds = Math.max(0, Math.round(milliseconds / 1000));
  for (const [unit, size] of UNITS) if (seconds >= size) return `${Math.floor(seconds / size)}${unit}`;
  return `${seconds}s`;
}

export const ago = (asOf: number, at: number | undefined): string =>
  at === undefined ? "-" : `${ageOf(asOf - at)} ago`;

export const instant = (at: number): string => new Date(at).toISOString();

/** The same object with these times as a program reads them; one that is left out stays so. */
export function withInstants(of: Readonly<Record<string, unknown>>, ...names: readonly string[]) {
  const times = names.flatMap((name) => (typeof of[name] === "number" ? [[name, instant(of[name])]] : []));
  return { ...of, ...(Object.fromEntries(times) as Record<string, string>) };
}
