/** The part of `oidc-provider` that the tests use; the package has no types. */
declare module "oidc-provider" {
  import type { RequestListener } from "node:http";

  type ProviderContext = { readonly oidc: { readonly params: Readonly<Record<string, string>> } };

  export default class Provider {
    constructor(issuer: string, configuration: object);
    callback(): RequestListener;
    on(event: string, listener: (context: ProviderContext) => void): this;
  }
}
