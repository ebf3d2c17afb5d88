/** What lies in a space's trust folder: who is refused, and the operator's own credential. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { decode } from "@nats-io/jwt";
import { describe, expect, onTestFinished, test } from "vitest";
import { ensureDeliveryTrust, ensureSystemCredentials } from "../../services/trust/delivery-trust.ts";
import {
  addRevoked,
  ensureOperatorCredential,
  ensureSpaceTrust,
  refusedUsers,
} from "../../services/trust/space-trust.ts";
import { Life } from "../../shared/grants/matrix.ts";
import { sys } from "../../shared/protocol/base/broker-subjects.ts";
import { readCredsFile } from "../../shared/trust/creds.ts";
import { DeliveryFile } from "../../shared/trust/delivery-folder.ts";
import { ProvisionerFile, trustPaths } from "../../shared/trust/folder.ts";
import { IssuedList } from "../../shared/trust/issued.ts";
import { newKey } from "../../shared/trust/keys.ts";

const NOW = 1_800_000_000;

function folder(): string {
  const path = mkdtempSync(join(tmpdir(), "cotal-space-trust-"));
  onTestFinished(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

describe("who is refused", () => {
  test("is told to the broker until the last JWT of that key has ended for long, and no longer", () => {
    const state = folder();
    addRevoked(state, "main", ["UOLD"], NOW);
    addRevoked(state, "main", ["UNEW"], NOW + 1.5 * Life.Static);
    expect(refusedUsers(state, "main", NOW + Life.Static).toSorted()).toEqual(["UNEW", "UOLD"]);
    // The account's JWT must fit into one message: it can't carry everybody who ever left.
    expect(refusedUsers(state, "main", NOW + 2.1 * Life.Static)).toEqual(["UNEW"]);
  });

  test("saying it again does not shorten it", () => {
    const state = folder();
    addRevoked(state, "main", ["U1"], NOW);
    addRevoked(state, "main", ["U1"], NOW + 1.9 * Life.Static);
    expect(refusedUsers(state, "main", NOW + 2.5 * Life.Static)).toEqual(["U1"]);
  });
});

describe("the operator's credential", () => {
  const read = (state: string) => readCredsFile(trustPaths(state).operatorCreds("main")).view;
  const listed = (state: string): IssuedList =>
    IssuedList.parse(
      JSON.parse(readFileSync(join(trustPaths(state).provisioner("main"), ProvisionerFile.Issued), "utf8")),
    );

  test("is kept in the first half of its life, and renewed under the same lifecycle in the second", async () => {
    const state = folder();
    const trust = ensureSpaceTrust(state, "main");
    await ensureOperatorCredential(state, trust, "static", NOW);
    const first = read(state);
    await ensureOperatorCredential(state, trust, "static", NOW + Life.Static * 0.4);
    expect(read(state)).toEqual(first);
    await ensureOperatorCredential(state, trust, "static", NOW + Life.Static * 0.6);
    expect([read(state).uid, read(state).userKey === first.userKey]).toEqual([first.uid, false]);
    expect(listed(state).map(({ credentialId }) => credentialId)).toEqual([first.userKey, read(state).userKey]);
  });

  test("that was revoked is replaced under a lifecycle of its own, and listed no more", async () => {
    const state = folder();
    const trust = ensureSpaceTrust(state, "main");
    await ensureOperatorCredential(state, trust, "static", NOW);
    const first = read(state);
    addRevoked(state, "main", [first.userKey], NOW);
    await ensureOperatorCredential(state, trust, "static", NOW);
    expect(read(state).uid).not.toBe(first.uid);
    expect(listed(state)).toEqual([
      expect.objectContaining({ uid: read(state).uid, credentialId: read(state).userKey }),
    ]);
  });
});

describe.each([
  [DeliveryFile.Evictor, "connection-evictor"],
  [DeliveryFile.Observer, "membership-observer"],
] as const)("the delivery service's user of the system account in %s", (file, profile) => {
  const key = newKey("account");
  const broker = { system: key, systemSigner: newKey("account") };
  const path = (state: string) => join(trustPaths(state).delivery("main"), file);
  const read = (state: string) => readCredsFile(path(state)).view;
  const ensured = async (auth: "static" | "user", at: number, state = folder()): Promise<string> => {
    const trust = ensureSpaceTrust(state, "main");
    ensureDeliveryTrust(state, trust);
    await ensureSystemCredentials(state, trust, broker, auth, at);
    return state;
  };

  test("PF.05 is of its one profile, of the daemon's own lifecycle, and sees this space's accounts alone, or front", async () => {
    const state = await ensured("static", NOW);
    const { keys } = ensureSpaceTrust(state, "main");
    const uid = readFileSync(join(trustPaths(state).delivery("main"), DeliveryFile.Uid), "utf8").trim();
    expect(read(state)).toMatchObject({ profile, principal: { actor: "delivery" }, uid });
    const claims = decode<{ pub?: { allow: string[] } }>(readCredsFile(path(state)).jwt).nats;
    const listing = (claims.pub?.allow ?? []).filter((subject) => subject.endsWith(".CONNZ"));
    expect(listing.toSorted()).toEqual(
      (profile === "connection-evictor" ? [keys.front, keys.store, keys.auth] : [keys.front])
        .map(({ publicKey }) => sys.accountConnections(publicKey))
        .toSorted(),
    );
  });

  test("is kept in the first half of its life; a renewed one is of the same lifecycle and inbox", async () => {
    const state = await ensured("static", NOW);
    const first = read(state);
    await ensured("static", NOW + Life.Static * 0.4, state);
    expect(read(state)).toEqual(first);
    await ensured("static", NOW + Life.Static * 0.6, state);
    const second = read(state);
    expect([second.uid, second.connId, second.userKey === first.userKey]).toEqual([first.uid, first.connId, false]);
  });

  test.each(["static", "user"] as const)(
    "W131L.01 %s: is listed for whoever writes the ledger, as one that reads nothing",
    async (auth) => {
      const state = await ensured(auth, NOW);
      const owner = auth === "user" ? trustPaths(state).auth("main") : trustPaths(state).provisioner("main");
      const { principal, uid, userKey } = read(state);
      expect(IssuedList.parse(JSON.parse(readFileSync(join(owner, ProvisionerFile.Issued), "utf8")))).toContainEqual({
        ...principal,
        uid,
        credentialId: userKey,
        expires: NOW + Life.Static,
        reads: false,
      });
    },
  );

  test("a damaged file is made anew", async () => {
    const state = await ensured("static", NOW);
    writeFileSync(path(state), "?");
    await ensured("static", NOW, state);
    expect(read(state).profile).toBe(profile);
  });
});
