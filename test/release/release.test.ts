// The SBOM and the licenses of a release, compared with what the bundler puts into the binary.
import { expect, test } from "bun:test";
import { Spec, Validation } from "@cyclonedx/cyclonedx-library";
import manifest from "../../package.json" with { type: "json" };
import { type Metafile, readContents } from "../../scripts/release/contents.ts";
import { createNotices } from "../../scripts/release/notices.ts";
import { createSbom } from "../../scripts/release/sbom.ts";
import { targets } from "../../scripts/release/targets.ts";

const workers = ["src/sqlite/file/thread.worker.ts", "src/sqlite/tables/sums.worker.ts"];
const { metafile } = await Bun.build({
  entrypoints: ["src/main.ts", ...workers],
  external: ["file-type"],
  target: "bun",
  metafile: true,
});
const packages = await readContents(metafile as Metafile);

const facts = { version: "1.2.3", packages };
const createBill = (target = targets[0]!) => {
  const committedAt = new Date("2026-01-02T03:04:05Z");
  return createSbom({ ...facts, target, sha256: "0".repeat(64), committedAt });
};

test("readContents returns the packages of the bundle, without development dependencies", () => {
  const names = packages.map(({ name }) => name);
  expect(names).toEqual(expect.arrayContaining(Object.keys(manifest.dependencies)));
  for (const name of Object.keys(manifest.devDependencies)) expect(names).not.toContain(name);
  expect(names).toEqual([...new Set(names)].sort());
  for (const { integrity } of packages) expect(integrity).toMatch(/^sha512-[\w+/]{86}==$/);
});

test("texts includes the licenses of packages that another package bundles", () => {
  const text = packages.find(({ name }) => name === "swagger-ui-dist")?.texts.join("\n") ?? "";
  expect(text).toContain("Apache License");
  // React and DOMPurify are bundled in swagger-ui-dist.
  expect(text).toContain("Facebook, Inc.");
  expect(text).toContain("Cure53");
});

test("readContents fails when a file belongs to no package", async () => {
  const strange = { outputs: { a: { inputs: { "../b.ts": { bytesInOutput: 1 } } } } };
  await expect(readContents(strange)).rejects.toThrow("Cannot find the package of ../b.ts");
  const empty = { outputs: { a: { inputs: { "../b.ts": { bytesInOutput: 0 } } } } };
  await expect(readContents(empty)).resolves.toEqual([]);
});

test.each(targets)("createSbom lists every package and Bun for $name", (target) => {
  const { specVersion, metadata, components, dependencies } = JSON.parse(createBill(target));
  expect(specVersion).toBe("1.6");
  expect(metadata.component).toMatchObject({ name: "user-api", version: "1.2.3" });
  const found = components.map(({ name, version }: any) => `${name}@${version}`);
  for (const { name, version } of packages) expect(found).toContain(`${name}@${version}`);
  expect(found).toContain(`bun@${Bun.version}`);
  expect(components).toHaveLength(1 + packages.length);
  // The application depends on each component, directly or not.
  const reached = new Set(["user-api"]);
  for (const ref of reached) {
    const edges = dependencies.find((edge: any) => edge.ref === ref)?.dependsOn ?? [];
    for (const next of edges) reached.add(next);
  }
  expect(reached.size).toBe(1 + components.length);
});

test("createSbom matches the schema of CycloneDX, has no unknown fields, and returns the same text again", async () => {
  const validator = new Validation.JsonStrictValidator(Spec.Version.v1dot6);
  for (const target of targets) expect(await validator.validate(createBill(target))).toBeNull();
  expect(createBill()).toBe(createBill());
  // Shows that the validator is strict, and knows the licenses of SPDX.
  const bill = JSON.parse(createBill());
  const licenses = [{ license: { id: "Mine" } }];
  for (const change of [
    { colour: "red" },
    { components: [{ type: "library", name: "x", licenses }] },
  ]) {
    const changed = JSON.stringify({ ...bill, ...change });
    expect(await validator.validate(changed)).not.toBeNull();
  }
});

test.each(targets)("createNotices has the text of every license for $name", async (target) => {
  const text = await createNotices({ ...facts, target });
  for (const { name, version, texts, license } of packages) {
    expect(text).toContain(`\n${name} ${version}\n`);
    for (const licenseText of texts) expect(text).toContain(licenseText);
    if (texts.length === 0) expect(text).toContain(`Text of ${license}`);
  }
  expect(text).toContain("Text of LGPL-2.0-or-later");
  expect(text).toContain("GNU LIBRARY GENERAL PUBLIC LICENSE");
  expect(text).toContain("https://sqlite.org");
});

test("createNotices has the text of every license that Bun's own list names", async () => {
  const document = await Bun.file("node_modules/bun-types/docs/project/license.mdx").text();
  const [, table = ""] = /## Linked libraries\n(.*?)\n## /s.exec(document) ?? [];
  const text = await createNotices({ ...facts, target: targets[0]! });
  const ids: [pattern: RegExp, id: string][] = [
    [/Apache/, "Apache-2.0"],
    [/BSD 2-Clause/, "BSD-2-Clause"],
    [/BSD 3-Clause|BSD License/, "BSD-3-Clause"],
    [/ICU license/, "Unicode-3.0"],
    [/IJG/, "IJG"],
    [/LGPL v2\.1/, "LGPL-2.1-or-later"],
    [/libpng/, "libpng-2.0"],
    [/\bMIT\b/, "MIT"],
    [/public domain/, "blessing"],
    [/several licenses/, "ISC"],
    [/zlib/i, "Zlib"],
  ];
  const rows = table
    .split("\n")
    .filter((row) => row.startsWith("|"))
    .slice(2);
  expect(rows.length).toBeGreaterThan(20);
  for (const row of rows) {
    // A license that is new in the list needs its text in the notices.
    const named = ids.filter(([pattern]) => pattern.test(row.split("|")[2] ?? ""));
    expect(named, row).not.toBeEmpty();
    for (const [, id] of named) expect(text).toContain(`Text of ${id}\n`);
  }
});
