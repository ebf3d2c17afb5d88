/**
 * Loaded in front of a daemon (`--import`): ends it with SIGKILL before or after its n-th durable step, as the wire sees
 * it: a marker with its batch, a membership row, a copy taken back. Nothing more is stored once the n-th is.
 *
 * `COTAL_TEST_DIE` says when: `before:3`, `after:3`.
 */
import { createRequire } from "node:module";

type Publish = (this: Protocol, subject: string, ...rest: readonly unknown[]) => void;
type Protocol = { readonly flush: () => Promise<void> };
type Internal = { readonly ProtocolHandler: { readonly prototype: { publish: Publish } } };

const [when = "", at = "0"] = (process.env["COTAL_TEST_DIE"] ?? "").split(":");
const DURABLE = /^cotal\.[^.]+\.dlvpos\.|^\$KV\.cotal_members_|^\$JS\.API\.STREAM\.MSG\.DELETE\.DLV_/;

if (Number(at) > 0) {
  const { ProtocolHandler } = createRequire(import.meta.url)("@nats-io/nats-core/internal") as Internal;
  const { publish } = ProtocolHandler.prototype;
  let steps = 0;
  ProtocolHandler.prototype.publish = function (subject, ...rest) {
    if (!DURABLE.test(subject)) return publish.call(this, subject, ...rest);
    steps += 1;
    if (steps > Number(at)) return undefined;
    if (steps < Number(at)) return publish.call(this, subject, ...rest);
    if (when === "before") process.kill(process.pid, "SIGKILL");
    publish.call(this, subject, ...rest);
    // The broker has it once it has answered what was sent behind it.
    void this.flush().then(() => process.kill(process.pid, "SIGKILL"));
    return undefined;
  };
}
