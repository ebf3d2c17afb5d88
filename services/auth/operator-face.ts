/**
 * Where the loopback (operator) exchange of a space listens, and who draws its capability (decision 30).
 *
 * On a machine it is the loopback address, and each start draws a capability of its own. In a container that
 * address reaches nobody: the face listens on an address of the container, whose port is published to the
 * loopback address of the machine, and several instances share a capability that was drawn before them.
 *
 * Invariants
 * 1. It listens on no other address than loopback unless both settings say so: the place, and the capability.
 * 2. A listener belongs to one space, named or the only one (§10).
 */
import { readFileSync } from "node:fs";
import { CotalError, ErrorCode, Outcome, badRequest } from "../../shared/protocol/base/errors.ts";
import { FACE_SETTING, type PublicEntry, listenersBySpace } from "./public-faces.ts";

export type OperatorFace =
  | { readonly kind: "machine"; readonly port: number }
  | {
      readonly kind: "container";
      readonly host: string;
      readonly port: number;
      /** The file that holds the capability. */
      readonly capability: string;
    };

export type OperatorFaceSettings = {
  readonly spaces: readonly string[];
  readonly facePort: number;
  readonly face: readonly PublicEntry[] | undefined;
  readonly faceCapability: string | undefined;
};

/** The place of each space's face. Throws `bad-request` for settings that don't fit each other. */
export function operatorFaces(settings: OperatorFaceSettings): (space: string) => OperatorFace {
  const { spaces, facePort: port, face: entries, faceCapability: file } = settings;
  if ((entries === undefined) !== (file === undefined)) {
    throw badRequest(
      `${FACE_SETTING.face} and ${FACE_SETTING.capability} can't be used: one of them is not set`,
      "set both, in a container whose port is published to 127.0.0.1, or neither",
    );
  }
  if (entries === undefined || file === undefined) return () => ({ kind: "machine", port });
  const listeners = listenersBySpace(FACE_SETTING.face, spaces, entries);
  return (space) => {
    const at = listeners.get(space);
    if (at === undefined) return { kind: "machine", port: 0 };
    return { kind: "container", ...at, capability: file.replaceAll("{space}", space) };
  };
}

const CAPABILITY = /^[A-Za-z0-9_-]{43,128}$/;

/** The capability in a file. Throws `failed-precondition` that names the file and quotes nothing. */
export function capabilityIn(path: string): string {
  const text = textOf(path);
  if (text !== undefined && CAPABILITY.test(text)) return text;
  throw new CotalError(ErrorCode.FailedPrecondition, `${path} does not hold a capability`, {
    outcome: Outcome.NotExecuted,
    next: "run the initialiser, which draws it (at least 43 letters, digits, - or _)",
  });
}

function textOf(path: string): string | undefined {
  try {
    return readFileSync(path, "utf8").trim();
  } catch {
    return undefined;
  }
}
