/**
 * A service of one's own: two typed commands under a name of one's own.
 *
 *     npx cotal endpoint assign com.example.echo --owner OWNER      (cotal whoami shows the owner)
 *     npx cotal actor grant echo --capability serve
 *     npx node examples/echo-endpoint.ts
 *
 * Where credentials are minted: cotal mint --owner acme --actor echo --capability serve --out echo.creds, and
 * the file as a second argument. Then, for whoever was granted --capability com.example.echo:
 *
 *     npx cotal call com.example.echo say --args '{"text":"hello"}'
 */
import { AuthzMode, defineCluster, handlersOf, hostEndpoint } from "cotal/endpoint";
import { signedIn } from "cotal/signed-in";
import { z } from "zod";

const [server = "nats://127.0.0.1:4222", file] = process.argv.slice(2);
const credentials = file === undefined ? signedIn({ actor: "echo" }) : ({ kind: "static", file } as const);

const ECHO = defineCluster({
  urn: "com.example.echo.v1",
  revision: 1,
  commands: [
    {
      name: "say",
      class: "ephemeral",
      effect: "read",
      input: z.strictObject({ text: z.string().max(1000) }),
      output: z.strictObject({ text: z.string(), from: z.string() }),
    },
    {
      name: "note",
      class: "ephemeral",
      effect: "write",
      modes: [AuthzMode.Self],
      input: z.strictObject({ text: z.string().max(1000) }),
      output: z.strictObject({ notes: z.array(z.string()) }),
    },
  ],
});

const notes = new Map<string, string[]>();

const host = await hostEndpoint(
  { servers: [server], credentials },
  {
    endpoint: "com.example.echo",
    clusters: [ECHO],
    handlers: handlersOf(ECHO, {
      say: async ({ text }, { from }) => ({ text, from }),
      note: async ({ text }, { from }) => {
        notes.set(from, [...(notes.get(from) ?? []), text].slice(-100));
        return { notes: notes.get(from) ?? [] };
      },
    }),
  },
);
console.log(`com.example.echo is served as ${host.instanceId}, epoch ${host.epoch}`);
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => void host.drain());
await host.closed;
