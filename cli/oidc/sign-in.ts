/**
 * Signing in at a provider, as a person sees it: where to go, what to type there, and what to do where
 * there is no browser.
 */
import type { Output } from "../output.ts";
import { oneLine } from "../text.ts";
import { signInByBrowser } from "./browser.ts";
import { signInByDevice } from "./device.ts";
import { openInBrowser } from "./opener.ts";
import { type ProviderAt, type Tokens, findProvider } from "./provider.ts";

export type SignInWay = { readonly device: boolean; readonly waitMs: number; readonly out: Output };

export async function signInAt(at: ProviderAt, { device, waitMs, out }: SignInWay): Promise<Tokens> {
  const provider = await findProvider(at);
  if (device) return signInByDevice(provider, { waitMs, show: (page, code) => showCode(out, page, code) });
  return signInByBrowser(provider, { waitMs, show: (address) => showAddress(out, address) });
}

function showAddress(out: Output, address: URL): void {
  const { href } = address;
  out.notice({ kind: "notice", about: "sign-in", address: href }, `sign in at: ${href}`);
  if (openInBrowser(address)) out.note("a browser was asked to open it; waiting for the answer");
  else out.note("open it in a browser on this machine; on one without a browser: cotal login --device");
}

function showCode(out: Output, { href }: URL, given: string): void {
  const code = oneLine(given);
  out.notice(
    { kind: "notice", about: "device", address: href, code },
    `open ${href} on any machine and enter: ${code}`,
  );
  out.note("waiting for the answer");
}
