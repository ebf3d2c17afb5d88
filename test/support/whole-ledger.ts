/** The auth bucket as it stands: every row under its family, whole, and naming its own key (§13.1). */
import type { NatsConnection } from "@nats-io/transport-node";
import { expect } from "vitest";
import type { z } from "zod";
import { rowPage } from "../../shared/broker/reads.ts";
import { spaceNames } from "../../shared/protocol/base/names.ts";
import { ActorRow, EvidenceRow, PlaneRow } from "../../shared/protocol/ledger/actor-rows.ts";
import { ChatHolderRow, ChatOwnerRow, ChatSessionRow } from "../../shared/protocol/ledger/chat-rows.ts";
import {
  EndpointCredentialRow,
  EndpointGateRow,
  ServiceNameRow,
  ServingStage,
} from "../../shared/protocol/ledger/endpoint-rows.ts";
import { ActivationStage, CredentialRow, GateRow, TakeoverStage } from "../../shared/protocol/ledger/rows.ts";

const FAMILIES: Readonly<Record<string, readonly z.ZodType[]>> = {
  gate: [GateRow],
  cred: [CredentialRow],
  epgate: [EndpointGateRow],
  epcred: [EndpointCredentialRow],
  servicename: [ServiceNameRow],
  // Whatever an operation has prepared and not yet carried out is here, and under no prefix that a barrier enumerates.
  stage: [ActivationStage, TakeoverStage, ServingStage],
  actor: [ActorRow],
  natkey: [EvidenceRow],
  plane: [PlaneRow],
  chatholder: [ChatHolderRow],
  chatowner: [ChatOwnerRow],
  chatsession: [ChatSessionRow],
};

/** Looks at what was written from this sequence on, and hands back where the next look begins. */
export async function expectWholeLedger(nc: NatsConnection, from = 1): Promise<number> {
  let next = from;
  for (let cursor: number | undefined = from; cursor !== undefined;) {
    const page = await rowPage(nc, spaceNames("main").bucket.auth, { cursor, limit: 200, via: "leader" });
    for (const { key, seq, kind, data } of page.rows) {
      next = seq + 1;
      const [family = "", first, second] = key.split(".");
      // What was never deleted has no marker.
      expect(`${kind} ${key}`).toBe(`value ${key}`);
      const value: unknown = JSON.parse(new TextDecoder().decode(data));
      const isWhole = (FAMILIES[family] ?? []).some((schema) => schema.safeParse(value).success);
      expect([key, isWhole]).toEqual([key, true]);
      if (family === "cred") expect(value).toMatchObject({ lifecycleUid: first, credentialId: second });
      if (family === "stage") expect(value).toMatchObject({ opId: first });
    }
    ({ cursor } = page);
  }
  return next;
}
