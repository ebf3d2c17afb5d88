/**
 * Compiled schemas, each made once and kept while it is used: at most 256 (supplement A), and at most so
 * many bytes, so that ten thousand schemas of strangers cost no more than a few large ones.
 */
import { LRUCache } from "lru-cache";
import { type SchemaClosure } from "./closure.ts";
import { type CompiledSchema, compileClosure } from "./compile.ts";
import { SchemaLimit } from "./limits.ts";
import { type CpuClock, threadCpuMs } from "./meter.ts";

export type Validators = {
  /** The schema as a function; `contract-invalid` if it does not compile within its budget. */
  of(closure: SchemaClosure): CompiledSchema;
  /** How many are kept. */
  readonly size: number;
};

export function createValidators(cpuMs: CpuClock = threadCpuMs): Validators {
  const kept = new LRUCache<string, CompiledSchema>({
    max: SchemaLimit.compiled,
    maxSize: SchemaLimit.compiledBytes,
    sizeCalculation: ({ weight }) => weight,
  });
  return {
    of(closure) {
      const known = kept.get(closure.digest);
      if (known !== undefined) return known;
      const made = compileClosure(closure, cpuMs);
      kept.set(closure.digest, made);
      return made;
    },
    get size() {
      return kept.size;
    },
  };
}
