/**
 * Subjects of the rails repeat from request to request in all but their last token: what stands before it is
 * read once and remembered (§13.2).
 *
 * Invariants
 * 1. What comes out is what reading the whole subject gives: the nonce ends every form and has no say in which
 *    form it is.
 * 2. No nonce is kept. So many heads at most, and of malformed ones none: where there are more, all are
 *    forgotten, which costs less than to know which one was used last.
 */
import { MAX_SUBJECT_BYTES, REQUEST_NONCE } from "../base/grammar.ts";

/** A head takes less than 2 KB. */
const MAX_HEADS = 1024;

/** Reads a subject through `readHead`, which is given everything before the last dot. */
export function byHead<T extends object>(
  readHead: (head: string) => T | undefined,
): (subject: string) => (T & { readonly nonce: string }) | undefined {
  const heads = new Map<string, T>();
  return (subject) => {
    if (subject.length > MAX_SUBJECT_BYTES) return undefined;
    const end = subject.lastIndexOf(".");
    const nonce = subject.slice(end + 1);
    if (end < 0 || !REQUEST_NONCE.test(nonce)) return undefined;
    const head = subject.slice(0, end);
    const known = heads.get(head);
    if (known !== undefined) return { ...known, nonce };
    const read = readHead(head);
    if (read === undefined) return undefined;
    if (heads.size >= MAX_HEADS) heads.clear();
    // A slice of a string holds all of it, and so the nonce: a copy does not.
    heads.set(Buffer.from(head).toString(), read);
    return { ...read, nonce };
  };
}
