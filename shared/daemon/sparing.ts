/**
 * Sparing with log lines that others cause: a flood of refusals fills no disk.
 *
 * The first lines of each minute are written; of the rest only the number, with the first line of the
 * next minute.
 */
export type Sparing = (write: (more: { readonly leftOut?: number }) => void) => void;

const MINUTE_MS = 60_000;

export function createSparing(perMinute: number, now: () => number): Sparing {
  let since = Number.NEGATIVE_INFINITY;
  let written = 0;
  let leftOut = 0;
  return (write) => {
    if (now() - since >= MINUTE_MS) {
      since = now();
      written = 0;
    }
    if (written === perMinute) {
      leftOut += 1;
      return;
    }
    written += 1;
    const missed = leftOut;
    leftOut = 0;
    write(missed === 0 ? {} : { leftOut: missed });
  };
}
