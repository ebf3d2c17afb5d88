/** Writes of membership rows: a create, or a compare-and-set on what was read; the view follows at once. */
import type { Writer } from "../../../shared/broker/write.ts";
import { kvKey } from "../../../shared/protocol/base/broker-subjects.ts";
import { bucketStream, spaceNames } from "../../../shared/protocol/base/names.ts";
import type { Lifecycle, MemberRow } from "../../../shared/protocol/ledger/member-rows.ts";
import { ledgerKey } from "../../../shared/protocol/ledger/rows.ts";
import type { Member } from "./cover.ts";
import type { View } from "./view.ts";

export type RowWriter = {
  readonly create: (lifecycle: Lifecycle, row: MemberRow) => Promise<Member>;
  /** Over the revision of `member`. A lost one is `conflict`. */
  readonly put: (member: Member, row: MemberRow) => Promise<Member>;
};

export function createRowWriter(space: string, writer: Writer, view: View): RowWriter {
  const { members } = spaceNames(space).bucket;
  const stream = bucketStream(members);
  const encode = (row: MemberRow): Uint8Array => new TextEncoder().encode(JSON.stringify(row));
  const noted = (member: Member): Member => {
    view.cover.set(member);
    view.changed();
    return member;
  };
  return {
    create: async (lifecycle, row) => {
      const key = ledgerKey.member(lifecycle.principal, lifecycle.uid, row.pattern);
      const revision = await writer.create(stream, kvKey(members, key), encode(row));
      return noted({ key, revision, lifecycle, row });
    },
    put: async ({ key, revision: expected, lifecycle }, row) => {
      const revision = await writer.cas(stream, kvKey(members, key), encode(row), expected);
      return noted({ key, revision, lifecycle, row });
    },
  };
}
