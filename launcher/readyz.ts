/** Asks a daemon of this machine what it says of itself (`/readyz`). */
import { get } from "node:http";
import { z } from "zod";
import { LOOPBACK, parseJson } from "./state-folder.ts";

const Readyz = z.looseObject({
  checks: z.array(z.looseObject({ name: z.string(), ok: z.boolean(), detail: z.string(), next: z.string() })),
});
export type HealthCheck = z.infer<typeof Readyz>["checks"][number];

const TIMEOUT_MS = 2000;
const MAX_BODY = 1024 * 1024;

/** The checks that fail; `undefined` if it does not answer. */
export async function failingChecks(port: number): Promise<readonly HealthCheck[] | undefined> {
  const text = await ask(port);
  const parsed = Readyz.safeParse(text === undefined ? undefined : parseJson(text));
  return parsed.success ? parsed.data.checks.filter(({ ok }) => !ok) : undefined;
}

function ask(port: number): Promise<string | undefined> {
  return new Promise((resolve) => {
    const request = get({ host: LOOPBACK, port, path: "/readyz", timeout: TIMEOUT_MS }, (response) => {
      let text = "";
      response.setEncoding("utf8");
      response.on("data", (chunk: string) => {
        text = (text + chunk).slice(0, MAX_BODY);
      });
      response.once("end", () => resolve(text));
      response.once("error", () => resolve(undefined));
    });
    request.once("timeout", () => request.destroy());
    request.once("error", () => resolve(undefined));
  });
}
