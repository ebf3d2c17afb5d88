/**
 * Opens an address in the person's browser, where this machine has a way to.
 *
 * Invariant: the address is one argument of a program, never part of a shell's line, and only an address
 * that `address.ts` lets through.
 */
import { spawn } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";

type Env = Readonly<Record<string, string | undefined>>;
type Opener = { readonly file: string; readonly args: readonly string[] };

/** The platform's own opener; `undefined` where nothing would show. */
export function findOpener(platform: NodeJS.Platform, env: Env): Opener | undefined {
  switch (platform) {
    case "darwin":
      return { file: "/usr/bin/open", args: [] };
    case "win32":
      return { file: "rundll32.exe", args: ["url.dll,FileProtocolHandler"] };
    default:
      return isEmpty(env["DISPLAY"]) && isEmpty(env["WAYLAND_DISPLAY"]) ? undefined : onPath("xdg-open", env);
  }
}

function onPath(name: string, env: Env): Opener | undefined {
  const file = (env["PATH"] ?? "")
    .split(delimiter)
    .filter((folder) => folder.startsWith("/"))
    .map((folder) => join(folder, name))
    .find(isProgram);
  return file === undefined ? undefined : { file, args: [] };
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

const isEmpty = (value: string | undefined): boolean => value === undefined || value === "";

/** Whether a browser was asked for; that one comes up is for the person to see. */
export function openInBrowser(address: URL): boolean {
  const opener = findOpener(process.platform, process.env);
  if (opener === undefined) return false;
  const child = spawn(opener.file, [...opener.args, address.href], { stdio: "ignore", detached: true });
  // It could not be started: the address is on the screen.
  child.once("error", () => undefined);
  child.unref();
  return true;
}
