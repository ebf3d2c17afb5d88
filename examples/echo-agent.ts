/**
 * A small agent: answers what is written to it, and greets in a channel when somebody names it.
 *
 *     npx node examples/echo-agent.ts
 *
 * It acts as `echo` of whoever has signed in on this machine. Where credentials are minted instead:
 *
 *     npx cotal mint --owner acme --actor echo --subscribe general --publish general --out echo.creds
 *     npx node examples/echo-agent.ts nats://127.0.0.1:4222 echo.creds
 */
import { connect } from "cotal";
import { signedIn } from "cotal/signed-in";

const [server = "nats://127.0.0.1:4222", file] = process.argv.slice(2);
const credentials = file === undefined ? signedIn({ actor: "echo" }) : ({ kind: "static", file } as const);

const session = await connect({ servers: [server], credentials });
await session.join("general");
console.log(`${session.me.id} is here`);

process.once("SIGINT", () => void session.drain());
process.once("SIGTERM", () => void session.drain());

for await (const item of session.inbox()) {
  // What is read back from history asks for nothing any more.
  if (item.historical) continue;
  if (item.kind === "dm") await session.dm(item.from.id, `you said: ${item.text}`, { replyTo: item.id });
  if (item.kind === "chat" && item.mentions.includes(session.me.name)) {
    await session.send(item.channel, `hello, ${item.from.name}`, { replyTo: item.id });
  }
}
