/** Publishes with header blocks that a client library would not make, as bytes on a socket of an open broker. */
import { connect as dial } from "node:net";

export type RawMessage = {
  readonly subject: string;
  /** The whole block, its first line and last empty line too. */
  readonly headers: string;
  readonly data: string;
};

const LONGEST_MS = 20_000;

/** Resolves once the broker has read them all. */
export function raw(port: number, messages: readonly RawMessage[]): Promise<void> {
  return new Promise((resolve, reject) => {
    const socket = dial(port, "127.0.0.1");
    let heard = "";
    socket.setTimeout(LONGEST_MS, () => socket.destroy(new Error("the broker does not answer")));
    socket.once("error", reject);
    socket.once("connect", () => {
      const line = { verbose: false, pedantic: false, lang: "raw", version: "1.0.0", protocol: 1, headers: true };
      socket.write(`CONNECT ${JSON.stringify(line)}\r\n`);
      for (const { subject, headers, data } of messages) {
        const [head, body] = [Buffer.from(headers), Buffer.from(data)];
        socket.write(`HPUB ${subject} ${head.length} ${head.length + body.length}\r\n`);
        socket.write(Buffer.concat([head, body, Buffer.from("\r\n")]));
      }
      socket.write("PING\r\n");
    });
    socket.on("data", (chunk: Buffer) => {
      heard += chunk.toString("latin1");
      if (!heard.includes("PONG")) return;
      socket.destroy();
      if (heard.includes("-ERR")) reject(new Error(heard));
      else resolve();
    });
  });
}
