/**
 * A row of the profile matrix: `(profile, account, operation) → one subject` (supplement E).
 *
 * The matrix is the only source: credentials, `docs/security/profiles.md` and the live probes are
 * generated from rows, never the other way round.
 */

/** The broker account in which a row holds (decision H60). */
export const Account = { Front: "front", Store: "store", Auth: "auth", System: "system" } as const;
export type Account = (typeof Account)[keyof typeof Account];

export type Row =
  | { readonly account: Account; readonly op: "pub"; readonly subject: string; readonly why: string }
  | {
      readonly account: Account;
      readonly op: "sub";
      readonly subject: string;
      /** A subscription of this queue group only; a plain one is refused. */
      readonly queue?: string;
      readonly why: string;
    };

/** A publish row. */
export const pub = (account: Account, subject: string, why: string): Row => ({ account, op: "pub", subject, why });

/** A subscribe row. */
export const sub = (account: Account, subject: string, why: string): Row => ({ account, op: "sub", subject, why });

/** A subscribe row that holds for one queue group only. */
export const queueSub = (account: Account, subject: string, queue: string, why: string): Row => ({
  account,
  op: "sub",
  subject,
  queue,
  why,
});
