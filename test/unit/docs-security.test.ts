/** The security model names what stays open: each residue that a test has pinned stands in its list. */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";

const text = readFileSync(join(import.meta.dirname, "..", "..", "docs", "security", "model.md"), "utf8");
const section = /## What stays open\n([\s\S]*?)\n## /.exec(text)?.[1] ?? "";

test("W9.20 the residues are written down, each under its own name", () => {
  const named = [...section.matchAll(/^- \*\*(.+?)\.?\*\*/gm)].map(([, name]) => name);
  expect(named).toEqual(
    expect.arrayContaining([
      "Metadata leaks",
      "Direct messages are plain text",
      "No non-repudiation",
      "Message ids are no secrets",
      "A role's holders share one queue",
      "A pull of a role's queue can be left behind",
      "A reply that is a pattern cuts answers under way",
      "A trace tells who listens",
      "Worthless bytes on a live subject",
    ]),
  );
  expect(section).toMatch(/admin/);
});
