/**
 * Loaded in front of a daemon (`--import`): ends it with SIGKILL before or after its n-th durable step, as the wire sees
 * it: a marker with its batch, a membership row, a copy taken back. Nothing more is stored once the n-th is.
 *
 * `COTAL_TEST_DIE` says when: `before:3`, `after:3`; `stop:3` is after it, with SIGSTOP. Of a daemon that works on other
 * things first, the file that `COTAL_TEST_DIE_FILE` names says it: it is read at SIGUSR2, and removed once the count begins.
 * `COTAL_TEST_DURABLE` is a pattern of subjects, for other steps.
 */
import { readFileSync, rmSync } from "node:fs";
import { createRequire } from "node:module";

type Publish = (this: Protocol, subject: string, ...rest: readonly unknown[]) => void;
type Protocol = { readonly flush: () => Promise<void> };
type Internal = { readonly ProtocolHandler: { readonly prototype: { publish: Publish } } };

const { COTAL_TEST_DIE = "", COTAL_TEST_DIE_FILE: file, COTAL_TEST_DURABLE: pattern } = process.env;
const DURABLE =
  pattern === undefined
    ? /^cotal\.[^.]+\.dlvpos\.|^\$KV\.cotal_members_|^\$JS\.API\.STREAM\.MSG\.DELETE\.DLV_/
    : new RegExp(pattern);

let [when, at] = read(COTAL_TEST_DIE);
let steps = 0;

function read(text: string): [string, number] {
  const [kind = "", number = "0"] = text.trim().split(":");
  return [kind, Number(number)];
}

if (file !== undefined) {
  process.on("SIGUSR2", () => {
    [when, at] = read(readFileSync(file, "utf8"));
    steps = 0;
    rmSync(file);
  });
}

if (file !== undefined || at > 0) {
  const { ProtocolHandler } = createRequire(import.meta.url)("@nats-io/nats-core/internal") as Internal;
  const { publish } = ProtocolHandler.prototype;
  const end = (): void => void process.kill(process.pid, when === "stop" ? "SIGSTOP" : "SIGKILL");
  ProtocolHandler.prototype.publish = function (subject, ...rest) {
    if (at === 0 || !DURABLE.test(subject)) return publish.call(this, subject, ...rest);
    steps += 1;
    if (steps > at) return undefined;
    if (steps < at) return publish.call(this, subject, ...rest);
    if (when === "before") end();
    publish.call(this, subject, ...rest);
    // The broker has it once it has answered what was sent behind it.
    void this.flush().then(end);
    return undefined;
  };
}
