/** A connect as bytes on a socket: for those that a client library would not make. */
import { connect as dial } from "node:net";

const LONGEST_MS = 20_000;

/** What the broker says before it ends the connection. */
export function deniedWith(port: number, options: Readonly<Record<string, string>>): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = dial(port, "127.0.0.1");
    let heard = "";
    socket.setTimeout(LONGEST_MS, () => socket.destroy(new Error("the broker neither let it in nor ended it")));
    socket.once("error", reject);
    socket.once("close", () => resolve(heard));
    socket.once("data", () => {
      const line = { verbose: false, pedantic: false, lang: "raw", version: "1.0.0", protocol: 1, ...options };
      socket.write(`CONNECT ${JSON.stringify(line)}\r\nPING\r\n`);
      socket.on("data", (chunk: Buffer) => {
        heard += chunk.toString("latin1");
      });
    });
  });
}
