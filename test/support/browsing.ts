/**
 * A person at a browser, as far as signing in goes: cookies, redirects, and the forms of the provider's
 * pages, filled in and sent.
 */
export type Person = {
  readonly login: string;
  /** Leaves at the first page that asks for anything. */
  readonly refuses?: boolean;
};

export type Page = { readonly url: string; readonly status: number; readonly text: string };

const MAX_STEPS = 20;

/** Goes where the pages lead; an address of another place than the first one ends the way unvisited. */
export async function walk(address: string, { login, refuses = false }: Person): Promise<Page> {
  const jar = new Map<string, string>();
  const { origin } = new URL(address);
  let at = address;
  let form: URLSearchParams | undefined;
  let hasLeft = false;
  for (let steps = 0; steps < MAX_STEPS; steps += 1) {
    if (new URL(at).origin !== origin) return { url: at, status: 0, text: "" };
    const response = await fetch(at, {
      redirect: "manual",
      headers: { cookie: [...jar].map(([name, value]) => `${name}=${value}`).join("; ") },
      ...(form === undefined ? {} : { method: "POST", body: form }),
    });
    for (const line of response.headers.getSetCookie()) keep(jar, line);
    const text = await response.text();
    const location = response.headers.get("location");
    form = undefined;
    if (location !== null) {
      at = new URL(location, at).href;
      continue;
    }
    const action = /<form[^>]*\baction="([^"]+)"/.exec(text)?.[1];
    if (action === undefined || hasLeft) return { url: at, status: response.status, text };
    if (refuses && at.includes("/interaction/")) {
      at = `${at}/abort`;
      hasLeft = true;
      continue;
    }
    form = filled(text, login);
    at = new URL(action.replaceAll("&amp;", "&"), at).href;
  }
  throw new Error(`the pages lead nowhere; the last one was ${at}`);
}

function keep(jar: Map<string, string>, line: string): void {
  const [pair = ""] = line.split(";");
  const cut = pair.indexOf("=");
  jar.set(pair.slice(0, cut), pair.slice(cut + 1));
}

function filled(html: string, login: string): URLSearchParams {
  const form = new URLSearchParams();
  for (const [input] of html.matchAll(/<input[^>]*>/g)) {
    const name = /\bname="([^"]+)"/.exec(input)?.[1];
    if (name === undefined) continue;
    form.set(name, /\bvalue="([^"]*)"/.exec(input)?.[1] ?? (name === "login" ? login : "any"));
  }
  return form;
}
