/**
 * Reads that the space's daemons make for its members (decision H1): registry, roster, watermark and
 * history by the delivery service, settings by the provisioner. A client of the space reaches no store itself.
 *
 * Invariants: an answer that does not parse is an error, never an empty result; a failed read is
 * told as such, so nobody takes it for "there is nothing" (§6).
 */
import type { z } from "zod";
import { ProvisionerCommand, ReadCommand } from "../grants/commands.ts";
import { CotalError, ErrorCode, Outcome } from "../protocol/base/errors.ts";
import { EndpointName } from "../protocol/endpoint/grammar.ts";
import { SpaceAnswer } from "../protocol/endpoint/provisioner-shapes.ts";
import {
  ChannelsAnswer,
  FrontierAnswer,
  type HistoryArgs,
  HistoryAnswer,
  type RosterArgs,
  RosterAnswer,
} from "../protocol/endpoint/reads-shapes.ts";
import type { Call } from "./caller.ts";

type Channels = z.infer<typeof ChannelsAnswer>;

export type Reads = {
  readonly space: () => Promise<z.infer<typeof SpaceAnswer>>;
  /** Every registered channel, by name. */
  readonly channels: () => Promise<Pick<Channels, "defaults" | "channels">>;
  readonly frontier: (channel: string) => Promise<z.infer<typeof FrontierAnswer>>;
  readonly roster: (args: z.infer<typeof RosterArgs>) => Promise<z.infer<typeof RosterAnswer>>;
  readonly history: (args: z.infer<typeof HistoryArgs>) => Promise<z.infer<typeof HistoryAnswer>>;
};

export function createReads(call: Call, deadlineMs: number): Reads {
  const read = async <Answer extends z.ZodType>(
    command: ReadCommand | typeof ProvisionerCommand.Space,
    args: unknown,
    answer: Answer,
  ): Promise<z.output<Answer>> => {
    const endpoint = command === ProvisionerCommand.Space ? EndpointName.Provisioner : EndpointName.Delivery;
    const { data } = await call(endpoint, command, args, { deadlineMs });
    const parsed = answer.safeParse(data);
    if (parsed.success) return parsed.data;
    throw new CotalError(ErrorCode.Internal, `the answer to ${command} does not have the shape of one`, {
      outcome: Outcome.Executed,
      next: "check that the daemons and this client are of one version",
    });
  };
  return {
    space: () => read(ProvisionerCommand.Space, {}, SpaceAnswer),
    channels: async () => {
      const found = new Map<string, Channels["channels"][number]>();
      let cursor: number | undefined;
      for (;;) {
        const args = cursor === undefined ? {} : { cursor };
        const page = await read(ReadCommand.Channels, args, ChannelsAnswer);
        // A channel that is changed meanwhile is met again, with its newer settings.
        for (const entry of page.channels) found.set(entry.channel, entry);
        if (page.cursor === undefined) {
          const channels = [...found.values()].toSorted((a, b) => (a.channel < b.channel ? -1 : 1));
          return { defaults: page.defaults, channels };
        }
        if (cursor !== undefined && page.cursor <= cursor) throw stuck();
        ({ cursor } = page);
      }
    },
    frontier: (channel) => read(ReadCommand.Frontier, { channel }, FrontierAnswer),
    roster: (args) => read(ReadCommand.Roster, args, RosterAnswer),
    history: (args) => read(ReadCommand.History, args, HistoryAnswer),
  };
}

function stuck(): CotalError {
  return new CotalError(ErrorCode.Internal, "the list of channels does not advance", {
    outcome: Outcome.Executed,
    next: "check that the daemons and this client are of one version",
  });
}
