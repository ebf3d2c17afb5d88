/**
 * Somebody between a client and its broker: passes on what both say, frame by frame, and can say to the
 * client what no broker would: on `$SYS.REQ.USER.AUTH` a real one takes nothing from anybody (measured).
 */
import { type Server, type Socket, connect as dial, createServer } from "node:net";
import { once } from "node:events";
import { freePort } from "./nats-server.ts";

export type Between = {
  readonly url: string;
  /** Puts a message to whoever has subscribed to that subject; throws while nobody has. */
  readonly say: (subject: string, message: Said) => Promise<void>;
  readonly stop: () => Promise<void>;
};

export type Said = {
  /** Publishes here are told to `heard` and go no further. */
  readonly reply: string;
  readonly data: Uint8Array;
  readonly headers?: Readonly<Record<string, string>>;
};

type Subscriber = { readonly socket: Socket; readonly sid: string };

const CRLF = Buffer.from("\r\n");
const WITH_PAYLOAD = /^(?:H?PUB|H?MSG) /;

/** `heard` is told the subject of every publish below `replies`. */
export async function startBetween(
  upstream: number,
  replies: string,
  heard: (subject: string) => void,
): Promise<Between> {
  const subscribers = new Map<string, Subscriber>();
  const open = new Set<Socket>();
  const server: Server = createServer((client) => {
    const broker = dial(upstream, "127.0.0.1");
    for (const [one, other] of [
      [client, broker],
      [broker, client],
    ] as const) {
      open.add(one);
      one.on("error", () => undefined);
      one.once("close", () => {
        open.delete(one);
        other.destroy();
      });
    }
    broker.on(
      "data",
      framed((_, frame) => void client.write(frame)),
    );
    client.on(
      "data",
      framed((line, frame) => {
        const [verb = "", subject = "", ...rest] = line.split(" ");
        if (verb === "SUB") subscribers.set(subject, { socket: client, sid: rest.at(-1) ?? "" });
        if (verb.endsWith("PUB") && subject.startsWith(replies)) heard(subject);
        else broker.write(frame);
      }),
    );
  });
  const port = await freePort();
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `nats://127.0.0.1:${port}`,
    say: async (subject, { reply, data, headers }) => {
      const to = subscribers.get(subject);
      if (to === undefined || to.socket.destroyed) throw new Error(`nobody has subscribed to ${subject}`);
      const head = headers === undefined ? undefined : headerBlock(headers);
      const sizes = head === undefined ? String(data.length) : `${head.length} ${head.length + data.length}`;
      const line = `${head === undefined ? "MSG" : "HMSG"} ${subject} ${to.sid} ${reply} ${sizes}\r\n`;
      const whole = Buffer.concat([Buffer.from(line), head ?? Buffer.alloc(0), data, CRLF]);
      if (!to.socket.write(whole)) await drained(to.socket);
    },
    stop: async () => {
      for (const socket of open) socket.destroy();
      server.close();
      await once(server, "close");
    },
  };
}

function drained(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      socket.off("drain", done).off("close", done);
      resolve();
    };
    socket.on("drain", done).on("close", done);
  });
}

function headerBlock(headers: Readonly<Record<string, string>>): Buffer {
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
  return Buffer.from(`NATS/1.0\r\n${lines.join("")}\r\n`);
}

/** Cuts a stream into frames: a line, with its payload if it has one. Nothing is said within a frame. */
function framed(take: (line: string, frame: Buffer) => void): (chunk: Buffer) => void {
  let held: Buffer = Buffer.alloc(0);
  return (chunk) => {
    held = held.length === 0 ? chunk : Buffer.concat([held, chunk]);
    for (;;) {
      const end = held.indexOf(CRLF);
      if (end === -1) return;
      const line = held.subarray(0, end).toString("latin1");
      const payload = WITH_PAYLOAD.test(line) ? Number(line.split(" ").at(-1)) + CRLF.length : 0;
      const size = end + CRLF.length + payload;
      if (held.length < size) return;
      take(line, held.subarray(0, size));
      held = held.subarray(size);
    }
  };
}
