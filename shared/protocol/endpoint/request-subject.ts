/**
 * Request subjects (§13.2): three routes, eight forms of target, two rails.
 *
 * Invariants
 * 1. A subject parses into what it was built from, or into nothing: what matches no form has no sender
 *    and is not handled.
 * 2. Discrimination is by reserved words at fixed places: rail, route, mode. Never by counting.
 */
import { blockTokens, takeBlock, type TargetBlock } from "./modes.ts";
import { form, joinSubject, writeToken } from "./forms.ts";
import { byHead } from "./heads.ts";
import { type CallTail, type CallerTail, railOf, railPrefix, readTail, splitRail, tailTokens } from "./rails.ts";

/** Where a request goes: to any instance of the class, to every one, or to one. */
export const Route = { One: "one", All: "all", Inst: "inst" } as const;
export type Route = (typeof Route)[keyof typeof Route];

/** A route, with the instance that the third one names. */
export type RouteTo =
  | { readonly route: typeof Route.One | typeof Route.All }
  | { readonly route: typeof Route.Inst; readonly instanceId: string };

/** A command, and the route to it. */
export type CommandAddress = RouteTo & { readonly endpoint: string; readonly command: string };

/** What is asked, and of whom. */
export type CallAddress = CommandAddress & {
  /** Absent for an untargeted command. */
  readonly target?: TargetBlock;
};

export type EndpointRequestSubject = CallAddress & CallTail & { readonly space: string };

const CLASS = form("endpoint", "command");
const INSTANCE = form("endpoint", "instanceId", "command");

export function requestSubject(request: EndpointRequestSubject): string {
  const place = request.route === Route.Inst ? INSTANCE.write(request) : CLASS.write(request);
  return joinSubject([
    ...railPrefix(request.space, railOf(request)),
    writeToken("route", request.route),
    ...place,
    ...blockTokens(request.target),
    ...tailTokens(request),
  ]);
}

/** Splits a request subject; `undefined` for every other shape. */
export const parseRequestSubject: (subject: string) => EndpointRequestSubject | undefined = byHead(readHead);

function readHead(head: string): (CallAddress & CallerTail & { readonly space: string }) | undefined {
  const split = splitRail(head);
  const [route, ...rest] = split?.rest ?? [];
  const place = readPlace(route, rest);
  if (split === undefined || place === undefined) return undefined;
  const block = takeBlock(place.rest);
  const tail = block === undefined ? undefined : readTail(block.rest, split.rail);
  if (block === undefined || tail === undefined) return undefined;
  const target = block.target === undefined ? {} : { target: block.target };
  return { space: split.space, ...place.address, ...target, ...tail };
}

function readPlace(
  route: string | undefined,
  tokens: readonly string[],
): { readonly address: CallAddress; readonly rest: readonly string[] } | undefined {
  if (route === Route.Inst) {
    const place = INSTANCE.read(tokens.slice(0, 3));
    return place === undefined ? undefined : { address: { route, ...place }, rest: tokens.slice(3) };
  }
  if (route !== Route.One && route !== Route.All) return undefined;
  const place = CLASS.read(tokens.slice(0, 2));
  return place === undefined ? undefined : { address: { route, ...place }, rest: tokens.slice(2) };
}
