/** Waiting for what a test has caused: looked at again and again, never slept for. */

const LOOK_MS = 20;

/**
 * Resolves once it holds; the deadline is generous and only bounds a failure, which says what was waited for. A look
 * may hand back what it sees, in words, in place of false: the failure says that too.
 */
export async function until(
  what: string,
  look: () => boolean | string | Promise<boolean | string>,
  ms = 25_000,
): Promise<void> {
  const end = performance.now() + ms;
  for (;;) {
    const seen = await look();
    if (seen === true) return;
    if (performance.now() > end) {
      throw new Error(`still not so after ${ms} ms: ${what}${seen === false ? "" : `; seen last: ${seen}`}`);
    }
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  }
}
