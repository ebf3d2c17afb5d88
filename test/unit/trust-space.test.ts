/** What lies in a space's trust folder: who is refused, and the operator's own credential. */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import {
  addRevoked,
  ensureOperatorCredential,
  ensureSpaceTrust,
  refusedUsers,
} from "../../services/trust/space-trust.ts";
import { Life } from "../../shared/grants/matrix.ts";
import { readCredsFile } from "../../shared/trust/creds.ts";
import { ProvisionerFile, trustPaths } from "../../shared/trust/folder.ts";
import { IssuedList } from "../../shared/trust/issued.ts";

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
