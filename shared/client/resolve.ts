/**
 * What a caller knows of an endpoint before it calls: its descriptor, and commands whose artifacts were
 * fetched and verified by their digests (supplement A).
 *
 * Invariants
 * 1. Nothing of a descriptor is used before its protocol version is known to be ours, and no command before
 *    its published bytes were checked.
 * 2. A resolution is kept under the registration that it was made from, and so many of them at most. It is
 *    dropped when the server says that another contract is served; one that lacks a command is made anew
 *    once before "not found" is said, for a right may have been given meanwhile.
 * 3. What is resolved at once by several is asked for once.
 * 4. Whatever fails here, the command itself was never sent, and the error says so.
 */
import { LRUCache } from "lru-cache";
import { CotalError, ErrorCode, Outcome, toCotalError } from "../protocol/base/errors.ts";
import { type FetchArtifact, Manifest } from "../protocol/contract/closure.ts";
import { type Descriptor, readDescriptor } from "../protocol/contract/descriptor.ts";
import { type ResolvedCommand, resolveCommand } from "../protocol/contract/resolve.ts";
import type { Incarnation } from "../protocol/endpoint/grammar.ts";
import { neverSent, silence } from "./rail-errors.ts";

/** Endpoints that are kept. */
const MAX_KEPT = 64;

export type Described = { readonly descriptor: Descriptor; readonly by: Incarnation };

/** A command, verified, and who told of it. */
export type Resolved = ResolvedCommand & {
  readonly by: Incarnation;
  readonly registrationRevision: number;
};

export type ResolverOptions = {
  /** Asks the endpoint's `describe`. */
  readonly describe: (endpoint: string) => Promise<{ readonly data: unknown; readonly by: Incarnation }>;
  readonly fetch: FetchArtifact;
  readonly maxKept?: number;
};

export type Resolver = {
  /** The descriptor as it is now. */
  readonly describe: (endpoint: string, deadlineMs: number) => Promise<Described>;
  readonly command: (endpoint: string, name: string, deadlineMs: number) => Promise<Resolved>;
  /** The same, if it is kept already. */
  readonly ready: (endpoint: string, name: string) => Resolved | undefined;
  /** What is known of this endpoint is not so any more. */
  readonly forget: (endpoint: string) => void;
  /** What is kept of it: the registration revision. */
  readonly keptRevision: (endpoint: string) => number | undefined;
};

type Kept = Described & {
  readonly commands: Map<string, Promise<Resolved>>;
  /** Those of them that are there: what is asked for most, and waits for nothing. */
  readonly ready: Map<string, Resolved>;
};

export function createResolver({ describe, fetch, maxKept = MAX_KEPT }: ResolverOptions): Resolver {
  const kept = new LRUCache<string, Kept>({ max: maxKept });
  const running = new Map<string, Promise<Kept>>();

  const ask = async (endpoint: string): Promise<Kept> => {
    const { data, by } = await describe(endpoint);
    const descriptor = readDescriptor(data);
    if (descriptor.endpoint !== endpoint) {
      throw new CotalError(ErrorCode.ContractMismatch, `${endpoint} describes itself as ${descriptor.endpoint}`, {
        next: "do not call it; report it to whoever runs that endpoint",
      });
    }
    const made: Kept = { descriptor, by, commands: new Map(), ready: new Map() };
    kept.set(endpoint, made);
    return made;
  };

  const afresh = (endpoint: string): Promise<Kept> => {
    const there = running.get(endpoint);
    if (there !== undefined) return there;
    const coming = ask(endpoint).finally(() => running.delete(endpoint));
    running.set(endpoint, coming);
    return coming;
  };

  const commandOf = (endpoint: string, of: Kept, name: string): Promise<Resolved> => {
    const known = of.commands.get(name);
    if (known !== undefined) return known;
    const { descriptor, by } = of;
    void prefetch(descriptor, name, fetch);
    const coming = resolveCommand(descriptor, name, fetch).then((resolved) => ({
      ...resolved,
      by,
      registrationRevision: descriptor.registrationRevision,
    }));
    of.commands.set(name, coming);
    coming.then(
      (resolved) => void of.ready.set(name, resolved),
      () => {
        // A failure is nothing to keep, be it a passing one or one that somebody mends.
        of.commands.delete(name);
        if (kept.peek(endpoint) === of) kept.delete(endpoint);
      },
    );
    return coming;
  };

  const find = async (endpoint: string, name: string): Promise<Resolved> => {
    const there = kept.get(endpoint);
    const isShown = there?.descriptor.commands.some((command) => command.name === name) === true;
    const of = there !== undefined && isShown ? there : await afresh(endpoint);
    return commandOf(endpoint, of, name);
  };

  return {
    describe: (endpoint, deadlineMs) => unsent(within(afresh(endpoint), `describe ${endpoint}`, deadlineMs)),
    ready: (endpoint, name) => kept.get(endpoint)?.ready.get(name),
    command: (endpoint, name, deadlineMs) =>
      unsent(within(find(endpoint, name), `the contract of ${endpoint} ${name}`, deadlineMs)),
    forget: (endpoint) => void kept.delete(endpoint),
    keptRevision: (endpoint) => kept.peek(endpoint)?.descriptor.registrationRevision,
  };
}

/** Members of one closure that are asked for before they are needed. */
const AHEAD = 32;

/**
 * Asks for what a verification will need while it still waits for the first of it: three round trips become
 * one. Nothing here is believed, and what fails here is said where it is needed.
 */
async function prefetch({ commands, clusters }: Descriptor, name: string, fetch: FetchArtifact): Promise<void> {
  const command = commands.find((one) => one.name === name);
  if (command === undefined) return;
  const cluster = clusters.find(({ urn }) => urn === command.cluster);
  const closures = [cluster?.digest, command.inputDigest, command.outputDigest].filter((one) => one !== undefined);
  await Promise.allSettled(
    closures.map(async (digest) => {
      const manifest = Manifest.parse(JSON.parse(new TextDecoder().decode(await fetch(digest))));
      await Promise.allSettled(manifest.members.slice(0, AHEAD).map(fetch));
    }),
  );
}

async function unsent<T>(pending: Promise<T>): Promise<T> {
  try {
    return await pending;
  } catch (thrown) {
    throw neverSent(toCotalError(thrown));
  }
}

/** Others may wait for the same resolution with more patience: it goes on. */
function within<T>(pending: Promise<T>, what: string, deadlineMs: number): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      const { code, message } = silence(what, deadlineMs);
      reject(
        new CotalError(code, message, {
          outcome: Outcome.NotExecuted,
          next: "nothing was called; ask again, or look with cotal status whether its daemon answers",
        }),
      );
    }, deadlineMs);
    void pending.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
