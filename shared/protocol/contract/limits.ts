/**
 * What a schema may cost (supplement A, "Schemas"). Whoever publishes a contract chooses its schemas, and
 * whoever serves or calls runs them; so every measure has a bound, and what is over it is `contract-invalid`.
 *
 * The first eight stand in the contract. The others are ours: they bound what a single step costs, so that
 * the budgets of time can be kept between steps.
 */
import { CotalError, ErrorCode } from "../base/errors.ts";

export const SchemaLimit = {
  /** Bytes of one document in its canonical form, which is what is published. */
  documentBytes: 256 * 1024,
  /** Bytes of all members of a closure together. */
  closureBytes: 1024 * 1024,
  /** Arrays and objects within one another, the document's own included. */
  nesting: 32,
  /** References that follow one another without a step into the data. */
  refChain: 32,
  /** Milliseconds of processor time. */
  compileMs: 100,
  validationMs: 10,
  /** Compiled schemas that are kept. */
  compiled: 256,

  /** UTF-16 units of one pattern, and instructions of its program. */
  patternLength: 1000,
  patternProgram: 4000,
  /** Program size times text length of one match: about 20 ms at the worst. */
  patternSteps: 2_000_000,
  /** Bytes of states that one pattern's automaton may keep. */
  patternStates: 64 * 1024,
  /** Bytes of all that is compiled, estimated. */
  compiledBytes: 128 * 1024 * 1024,
} as const;

/**
 * A contract, an artifact or a schema is refused. The outcome is left open: whether a command has run is
 * known where the refusal is met, not here.
 */
export function contractInvalid(message: string, next?: string, cause?: unknown): CotalError {
  return new CotalError(ErrorCode.ContractInvalid, message, {
    next: next ?? "mend the contract; the limits stand in supplement A",
    ...(cause === undefined ? {} : { cause }),
  });
}
