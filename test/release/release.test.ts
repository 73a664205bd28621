// What a release says of itself: the bill of materials and the licences, against what the bundler
// really puts into the binary.
import { beforeAll, describe, expect, test } from "bun:test";
import manifest from "../../package.json" with { type: "json" };
import {
  type BundledPackage,
  type Metafile,
  readContents,
} from "../../scripts/release/contents.ts";
import { librariesOf, linked_libraries } from "../../scripts/release/linked.ts";
import { createNotices } from "../../scripts/release/notices.ts";
import { createSbom, requireValid } from "../../scripts/release/sbom.ts";
import { targets } from "../../scripts/release/targets.ts";

let metafile: Metafile;
let packages: readonly BundledPackage[];

beforeAll(async () => {
  const built = await Bun.build({
    entrypoints: ["src/main.ts", "src/sqlite/thread.worker.ts"],
    external: ["file-type"],
    target: "bun",
    metafile: true,
  });
  metafile = built.metafile as Metafile;
  packages = await readContents(metafile);
});

const facts = () => ({ version: "1.2.3", packages, versions: process.versions });
const bill = (target = targets[0]!) => {
  const committed_at = new Date("2026-01-02T03:04:05Z");
  return createSbom({ ...facts(), target, sha256: "0".repeat(64), committed_at });
};

describe("contents", () => {
  test("`packages` are those of the bundle when some dependencies are for development", () => {
    const names = packages.map(({ name }) => name);
    expect(names).toEqual(expect.arrayContaining(Object.keys(manifest.dependencies)));
    for (const name of Object.keys(manifest.devDependencies)) expect(names).not.toContain(name);
    expect(names).toEqual([...new Set(names)].sort());
    for (const { integrity } of packages) expect(integrity).toMatch(/^sha512-[\w+/]{86}==$/);
  });

  test("`texts` have the licences of packages that stand in a file of another when it is bundled", () => {
    const args = packages.find(({ name }) => name === "swagger-ui-dist")?.texts.join("\n") ?? "";
    expect(args).toContain("Apache License");
    // Of React and DOMPurify, which no package.json of ours names.
    expect(args).toContain("Facebook, Inc.");
    expect(args).toContain("Cure53");
  });

  test("`readContents` refuses a file when it cannot tell whose it is", () => {
    const strange = { outputs: { a: { inputs: { "../b.ts": { bytesInOutput: 1 } } } } };
    expect(readContents(strange)).rejects.toThrow("Cannot tell whose ../b.ts is");
    const empty = { outputs: { a: { inputs: { "../b.ts": { bytesInOutput: 0 } } } } };
    expect(readContents(empty)).resolves.toEqual([]);
  });
});

describe("bill of materials", () => {
  test.each(targets)("`$name` names all that is in it when it is made", async (target) => {
    const { specVersion, metadata, components, dependencies } = JSON.parse(await bill(target));
    expect(specVersion).toBe("1.6");
    expect(metadata.component).toMatchObject({ name: "user-api", version: "1.2.3" });
    const found = components.map(({ name, version }: any) => `${name}@${version}`);
    for (const { name, version } of packages) expect(found).toContain(`${name}@${version}`);
    expect(found).toContain(`bun@${Bun.version}`);
    // On macOS Bun takes the library of the system.
    const sqlite = `sqlite@${process.versions["sqlite"]}`;
    expect(found.includes(sqlite)).toBe(target.os === "linux");
    expect(components).toHaveLength(1 + packages.length + librariesOf(target).length);
    // Each component hangs on the application, directly or not.
    const reached = new Set(["user-api"]);
    for (const ref of reached) {
      const edges = dependencies.find((edge: any) => edge.ref === ref)?.dependsOn ?? [];
      for (const next of edges) reached.add(next);
    }
    expect(reached.size).toBe(1 + components.length);
  });

  test("`createSbom` writes the same when nothing has changed", async () => {
    expect(await bill()).toBe(await bill());
  });

  test.each([
    ["a field that is unknown", { colour: "red" }],
    [
      "a licence that SPDX does not know",
      { components: [{ type: "library", name: "x", licenses: [{ license: { id: "Mine" } }] }] },
    ],
    ["a component without a name", { components: [{ type: "library" }] }],
  ])("`requireValid` throws when there is %s", async (_what, change) => {
    const json = JSON.stringify({ ...JSON.parse(await bill()), ...change });
    expect(requireValid(json)).rejects.toThrow("breaks its schema");
  });
});

describe("notices", () => {
  test.each(targets)(
    "`$name` has the words of every licence when they are made",
    async (target) => {
      const text = await createNotices({ ...facts(), target });
      for (const { name, version, texts, license } of packages) {
        expect(text).toContain(`\n${name} ${version}\n`);
        for (const args of texts) expect(text).toContain(args);
        if (texts.length === 0) expect(text).toContain(`Text of ${license}`);
      }
      expect(text).toContain("Text of LGPL-2.0-or-later");
      expect(text).toContain("GNU LIBRARY GENERAL PUBLIC LICENSE");
      expect(text.includes("sqlite.org")).toBe(true);
    },
  );

  test("`linked_libraries` are those of Bun's own document when Bun is of this version", async () => {
    const document = await Bun.file("node_modules/bun-types/docs/project/license.mdx").text();
    const [, table = ""] = /## Linked libraries\n(.*?)\n## /s.exec(document) ?? [];
    const rows = [...table.matchAll(/^\| (?:A fork of |Parts of )?\[`?([^`\]]+)`?\]/gm)];
    // libuv is for Windows. WebKit has a chapter of its own, and llhttp is told by process.versions.
    const named = rows.map(([, name]) => name ?? "").filter((name) => name !== "libuv");
    const expected = ["WebKit", "llhttp", ...named].sort();
    expect(linked_libraries.map(({ name }) => name).sort()).toEqual(expected);
  });

  test("`process.versions` has every version that the table looks for when it has a key", () => {
    const known = Object.keys(process.versions);
    const keys = linked_libraries.flatMap(({ version_key }) => version_key ?? []);
    expect(keys.filter((key) => !known.includes(key))).toEqual([]);
  });
});
