/**
 * docs/schema/: the JSON Schemas of the wire, from the Zod shapes in shared/protocol/.
 *
 * Messages are draft-07 because §5 asks for that draft, and message.json is authoritative for their
 * shape (decision H58). All others are 2020-12, as contracts are.
 *
 * Two rules of the Zod shapes have no JSON Schema form and are missing there: a holder name's
 * characters (take-request.json), and that Zod counts a string's length in UTF-16 units where JSON
 * Schema counts code points (a name of 128 emoji passes the schema and is refused by us).
 */
import { z } from "zod";
import { AnycastNotice, AnycastStatus, TakeReply, TakeRequest } from "../../shared/protocol/chat/anycast.ts";
import { ChannelConfig, ChannelDefaults } from "../../shared/protocol/chat/channel-config.ts";
import { EndpointEvent, EndpointReply, EndpointRequest } from "../../shared/protocol/endpoint/envelope.ts";
import { SpaceSettings } from "../../shared/protocol/chat/space-settings.ts";
import { LivenessAnswer } from "../../shared/protocol/chat/liveness.ts";
import { CotalMessage, EndpointRef } from "../../shared/protocol/chat/message.ts";
import { ArtifactPart, DataPart, ExtensionPart, Part, TextPart } from "../../shared/protocol/chat/parts.ts";
import {
  AgentCard,
  AgentSkill,
  Presence,
  PresenceCondition,
  PresenceRuntime,
} from "../../shared/protocol/chat/presence.ts";
import { type Generated } from "./generated.ts";

export const SCHEMA_FOLDER = "docs/schema";

type Draft = "draft-07" | "draft-2020-12";

type SchemaRow = {
  readonly file: string;
  readonly schema: z.ZodType;
  readonly draft: Draft;
  readonly title: string;
  readonly description: string;
};

const ROWS: readonly SchemaRow[] = [
  {
    file: "message.json",
    schema: CotalMessage,
    draft: "draft-07",
    title: "CotalMessage",
    description:
      "A delivery message (§5): exactly one of channel, to and toService. Unknown fields are allowed and ignored.",
  },
  {
    file: "presence.json",
    schema: Presence,
    draft: "draft-2020-12",
    title: "Presence",
    description: "What an instance writes about itself under its own presence key (§6).",
  },
  {
    file: "agent-card.json",
    schema: AgentCard,
    draft: "draft-2020-12",
    title: "AgentCard",
    description: "The identity record inside a presence record (§6). Advisory only.",
  },
  {
    file: "channel-config.json",
    schema: ChannelConfig,
    draft: "draft-2020-12",
    title: "ChannelConfig",
    description: "A channel's row in the registry, under the concrete channel (§7).",
  },
  {
    file: "channel-defaults.json",
    schema: ChannelDefaults,
    draft: "draft-2020-12",
    title: "ChannelDefaults",
    description: "The space-wide defaults of the registry (§7).",
  },
  {
    file: "space-settings.json",
    schema: SpaceSettings,
    draft: "draft-2020-12",
    title: "SpaceSettings",
    description: "The closed row of a space's settings in the channel registry.",
  },
  {
    file: "endpoint-request.json",
    schema: EndpointRequest,
    draft: "draft-2020-12",
    title: "EndpointRequest",
    description: "The request envelope of a command (§13.3).",
  },
  {
    file: "endpoint-reply.json",
    schema: EndpointReply,
    draft: "draft-2020-12",
    title: "EndpointReply",
    description: "The reply envelope of a command (§13.3). An error without an outcome is of unknown outcome.",
  },
  {
    file: "endpoint-event.json",
    schema: EndpointEvent,
    draft: "draft-2020-12",
    title: "EndpointEvent",
    description: "An event that an instance publishes (§13.3). It is no fact: nothing may take effect because of it.",
  },
  {
    file: "liveness-answer.json",
    schema: LivenessAnswer,
    draft: "draft-2020-12",
    title: "LivenessAnswer",
    description: "The reply to a plane liveness probe (§6.1).",
  },
  {
    file: "take-request.json",
    schema: TakeRequest,
    draft: "draft-2020-12",
    title: "TakeRequest",
    description: "A holder's request to take an anycast request (§8.1).",
  },
  {
    file: "take-reply.json",
    schema: TakeReply,
    draft: "draft-2020-12",
    title: "TakeReply",
    description: "The answer to a take (§8.1).",
  },
  {
    file: "anycast-status.json",
    schema: AnycastStatus,
    draft: "draft-2020-12",
    title: "AnycastStatus",
    description: "What a sender reads about an anycast request of its own (§8.1).",
  },
  {
    file: "anycast-notice.json",
    schema: AnycastNotice,
    draft: "draft-2020-12",
    title: "AnycastNotice",
    description: "The data part of the notice a sender gets when a holder took its request (§8.1).",
  },
];

/** Shapes that get a definition of their own inside every schema that uses them. */
const DEFINITIONS: Readonly<Record<string, z.ZodType>> = {
  Part,
  TextPart,
  DataPart,
  ArtifactPart,
  ExtensionPart,
  Json: DataPart.shape.data,
  EndpointRef,
  AgentCard,
  AgentSkill,
  PresenceCondition,
  PresenceRuntime,
};

/** One schema as a document. */
export function schemaDocument({ schema, draft, title, description }: SchemaRow): object {
  // A registry of our own: Zod's `.meta()` would write to one that the whole process shares.
  const names = z.registry<{ id: string }>();
  for (const [id, shape] of Object.entries(DEFINITIONS)) if (shape !== schema) names.add(shape, { id });
  const { $schema, ...rest } = z.toJSONSchema(schema, { target: draft, metadata: names });
  return { $schema, title, description, ...rest };
}

export function generateSchemas(): Generated[] {
  return ROWS.map((row) => ({
    file: `${SCHEMA_FOLDER}/${row.file}`,
    text: `${JSON.stringify(schemaDocument(row), undefined, 2)}\n`,
  }));
}
