/** The users of a process: the same for every opening of a space, and others once a row was refused. */
import { expect, test } from "vitest";
import { ownUsers } from "../../shared/broker/own-credential.ts";

test("each opening of a space comes with the same users, each space and each purpose with its own", async () => {
  const users = ownUsers();
  const keys = () =>
    [
      ["main", "store"],
      ["main", "front"],
      ["lab", "store"],
    ].map(([space = "", which = ""]) => users.of(space, which).publicKey);
  const first = keys();
  expect(new Set(first).size).toBe(3);
  expect(await users.entered("main", () => Promise.resolve("entered"))).toBe("entered");
  expect(keys()).toEqual(first);
});

test("one whose row is refused is drawn anew, and no other space's is", async () => {
  const users = ownUsers();
  const [main, lab] = [users.of("main", "store").publicKey, users.of("lab", "store").publicKey];
  await expect(users.entered("main", () => Promise.reject(new Error("revoked")))).rejects.toThrow("revoked");
  expect(users.of("main", "store").publicKey).not.toBe(main);
  expect(users.of("lab", "store").publicKey).toBe(lab);
});
