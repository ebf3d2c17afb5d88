/**
 * As much of MQTT 3.1.1 as the bench needs: one connection that subscribes, publishes at QoS 1 and acknowledges what
 * it gets. What goes out in one turn of the event loop goes out together.
 */
import { once } from "node:events";
import { type Socket, connect } from "node:net";

export type Mqtt = {
  /** The broker had kept this client's session. */
  readonly wasKept: boolean;
  readonly subscribe: (topic: string) => Promise<void>;
  /** Resolves with the broker's acknowledgement. At most 65,535 at once. */
  readonly publish: (topic: string, payload: Uint8Array) => Promise<void>;
  readonly close: () => Promise<void>;
};

export type MqttOptions = {
  readonly port: number;
  readonly id: string;
  /** False: the broker keeps the session while the client is away. */
  readonly clean: boolean;
  /** A message came, and was acknowledged. */
  readonly onMessage?: () => void;
};

const Packet = { Connect: 0x10, ConnAck: 0x20, Publish: 0x32, PubAck: 0x40, Subscribe: 0x82, SubAck: 0x90 } as const;
const DISCONNECT = Buffer.of(0xe0, 0);
const CLEAN = 0x02;
const QOS_1 = 1;
const LAST_ID = 65_535;

export async function openMqtt({ port, id, clean, onMessage }: MqttOptions): Promise<Mqtt> {
  const socket = connect(port, "127.0.0.1").setNoDelay();
  await once(socket, "connect");
  const send = together(socket);
  const waiting = new Map<number, () => void>();
  let opened: ((wasKept: boolean) => void) | undefined;
  let last = 0;
  const answer = (key: number): Promise<void> => new Promise((resolve) => waiting.set(key, resolve));
  const answered = (key: number): void => {
    waiting.get(key)?.();
    waiting.delete(key);
  };
  readPackets(socket, (type, body) => {
    if (type === Packet.ConnAck) return opened?.(body[0] === 1);
    if (type === Packet.PubAck || type === Packet.SubAck) return answered(body.readUInt16BE(0));
    const at = 2 + body.readUInt16BE(0);
    send(packet(Packet.PubAck, body.subarray(at, at + 2)));
    return onMessage?.();
  });
  const connected = new Promise<boolean>((resolve) => {
    opened = resolve;
  });
  const protocol = Buffer.of(0, 4, ...Buffer.from("MQTT"), 4, clean ? CLEAN : 0, 0, 0);
  send(packet(Packet.Connect, Buffer.concat([protocol, text(id)])));
  const wasKept = await connected;
  const next = (): number => (last = (last % LAST_ID) + 1);
  return {
    wasKept,
    subscribe: (topic) => {
      const number = next();
      send(packet(Packet.Subscribe, Buffer.concat([short(number), text(topic), Buffer.of(QOS_1)])));
      return answer(number);
    },
    publish: (topic, payload) => {
      const number = next();
      send(packet(Packet.Publish, Buffer.concat([text(topic), short(number), payload])));
      return answer(number);
    },
    close: async () => {
      const ended = once(socket, "close");
      send(DISCONNECT);
      setImmediate(() => socket.end());
      await ended;
    },
  };
}

function together(socket: Socket): (bytes: Uint8Array) => void {
  let waiting: Uint8Array[] = [];
  const flush = (): void => {
    socket.write(Buffer.concat(waiting));
    waiting = [];
  };
  return (bytes) => {
    if (waiting.push(bytes) === 1) setImmediate(flush);
  };
}

/** Hands on each packet that came whole, without the flags of its type. */
function readPackets(socket: Socket, take: (type: number, body: Buffer) => void): void {
  let rest: Buffer = Buffer.alloc(0);
  socket.on("data", (chunk) => {
    const bytes = rest.length === 0 ? Buffer.from(chunk) : Buffer.concat([rest, Buffer.from(chunk)]);
    let at = 0;
    for (;;) {
      const head = lengthAt(bytes, at + 1);
      if (head === undefined || head.end + head.length > bytes.length) break;
      take((bytes[at] ?? 0) & 0xf0, bytes.subarray(head.end, head.end + head.length));
      at = head.end + head.length;
    }
    rest = bytes.subarray(at);
  });
}

/** Seven bits a byte, the lowest first. */
function lengthAt(bytes: Buffer, from: number): { readonly length: number; readonly end: number } | undefined {
  let length = 0;
  for (let at = from; at < bytes.length; at += 1) {
    const byte = bytes[at] ?? 0;
    length += (byte & 0x7f) * 128 ** (at - from);
    if (byte < 0x80) return { length, end: at + 1 };
  }
  return undefined;
}

function packet(type: number, body: Uint8Array): Buffer {
  const length: number[] = [];
  let left = body.length;
  do {
    const more = left > 0x7f;
    length.push((left & 0x7f) | (more ? 0x80 : 0));
    left >>= 7;
  } while (left > 0);
  return Buffer.concat([Buffer.of(type, ...length), body]);
}

const short = (value: number): Buffer => Buffer.of(value >> 8, value & 0xff);
const text = (value: string): Buffer => Buffer.concat([short(Buffer.byteLength(value)), Buffer.from(value)]);
