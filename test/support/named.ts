type Members = readonly (readonly [name: string, value: unknown])[];

/** An object of these members; unlike `Object.fromEntries` it is typed, and takes several lists. */
export function named(...lists: readonly Members[]): Record<string, unknown> {
  return Object.fromEntries(lists.flat());
}

/** What a test has declared itself, and so must be there. */
export function present<T>(value: T | undefined): T {
  if (value === undefined) throw new Error("the test declared it, and it is not there");
  return value;
}
