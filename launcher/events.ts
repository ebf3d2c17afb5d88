/** What a launcher tells whoever shows its progress: a closed list, without a word of formatting. */
import type { AuthMode } from "../shared/protocol/chat/space-settings.ts";

export type PlaneEvent =
  /** A step of the start is done. */
  | { readonly kind: "step"; readonly step: string; readonly ms: number; readonly detail?: string }
  /** A start takes longer than usual; `why` is what the child itself says. */
  | { readonly kind: "waiting"; readonly child: string; readonly why: string }
  /** A child ended by itself and is started again after the wait. */
  | { readonly kind: "died"; readonly child: string; readonly why: string; readonly waitMs: number }
  | { readonly kind: "restarted"; readonly child: string; readonly ms: number }
  | { readonly kind: "warning"; readonly message: string; readonly next: string }
  | { readonly kind: "stopping" };

export type Report = (event: PlaneEvent) => void;

/** What is true once the plane is up. */
export type PlaneFacts = {
  readonly server: string;
  readonly port: number;
  readonly space: string;
  readonly auth: AuthMode;
  readonly state: string;
  readonly ms: number;
};
