/** THIRD-PARTY-NOTICES: the licenses of everything in a binary. */
import licenses from "spdx-license-list/full.js";
import type { BundledPackage } from "./contents.ts";
import type { Target } from "./targets.ts";

const RULE = "=".repeat(80);

/** Bun's list of its libraries and their licenses, for the pinned version. */
const BUN_DOCUMENT = "node_modules/bun-types/docs/project/license.mdx";

/** The licenses in this list, and those of the parts with "several licenses". */
const BUN_LICENSES = [
  ...["Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "blessing", "IJG", "ISC"],
  ...["LGPL-2.0-or-later", "LGPL-2.1-or-later", "libpng-2.0", "MIT", "Unicode-3.0", "Zlib"],
];

function section(title: string, ...paragraphs: readonly string[]): string {
  return [`${RULE}\n${title}\n${RULE}`, ...paragraphs].join("\n\n");
}

/** @returns the licenses in an SPDX expression */
function licensesOf(expression: string): string[] {
  return expression.split(/\s+(?:AND|OR)\s+|[()]/).filter((id) => id !== "");
}

/** @throws if the license is unknown */
function textOf(id: string): string {
  const text = licenses[id]?.licenseText;
  if (text === undefined) throw new Error(`Cannot find the text of the license ${id}`);
  return text.trim();
}

function describePackage({ name, version, license, texts }: BundledPackage): string {
  // If a package has no license file, the text of its license is at the end.
  const paragraphs = texts.length > 0 ? texts : [`License: ${license}`];
  return section(`${name} ${version}`, ...paragraphs);
}

/** What goes into a binary. */
export interface ReleaseFacts {
  readonly version: string;
  readonly target: Target;
  readonly packages: readonly BundledPackage[];
}

/** @throws if the text of a license is unknown */
export async function createNotices({ version, target, packages }: ReleaseFacts): Promise<string> {
  const document = (await Bun.file(BUN_DOCUMENT).text()).replace(/^---\n.*?\n---\n/s, "").trim();

  const withoutText = packages.filter(({ texts }) => texts.length === 0);
  const ids = [...BUN_LICENSES, ...withoutText.flatMap(({ license }) => licensesOf(license))];

  return `${[
    `Licenses of the software in user-api ${version} for ${target.name}`,
    section(
      `Bun ${Bun.version}`,
      "Copyright (c) Oven. Its own list of what it contains:",
      document,
    ),
    section(
      "The GNU Lesser General Public License",
      `JavaScriptCore and tinycc, which Bun contains, are licensed under it. The binary is the executable of
Bun with user-api appended. To use a changed version of one of them, build Bun as described above, and
run scripts/build.sh of user-api with --compile-executable-path=<path of that Bun>.`,
    ),
    ...packages.map(describePackage),
    ...[...new Set(ids)].sort().map((id) => section(`Text of ${id}`, textOf(id))),
  ].join("\n\n")}\n`;
}
