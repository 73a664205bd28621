/** The licences of all that is in a binary, as one text that goes with it. */
import licenses from "spdx-license-list/full.js";
import type { BundledPackage } from "./contents.ts";
import { librariesOf } from "./linked.ts";
import type { Target } from "./targets.ts";

const RULE = "=".repeat(80);

/** What Bun says of itself, in the version that is used: it comes with its types. */
const BUN_DOCUMENT = "node_modules/bun-types/docs/project/license.mdx";

function section(title: string, ...paragraphs: readonly string[]): string {
  return [`${RULE}\n${title}\n${RULE}`, ...paragraphs].join("\n\n");
}

/** The licences that an SPDX expression names. */
function licensesOf(expression: string): string[] {
  return expression.split(/\s+(?:AND|OR)\s+|[()]/).filter((id) => id !== "");
}

/** @throws when there is no such licence */
function textOf(id: string): string {
  const text = licenses[id]?.licenseText;
  if (text === undefined) throw new Error(`There is no text of the licence ${id}`);
  return text.trim();
}

function describePackage({ name, version, license, texts }: BundledPackage): string {
  // One that brings no text names its licence: the text is in the last part.
  const words = texts.length > 0 ? texts : [`Licence: ${license}`];
  return section(`${name} ${version}`, ...words);
}

export interface NoticesInput {
  readonly version: string;
  readonly target: Target;
  readonly packages: readonly BundledPackage[];
  /** `process.versions` of Bun. */
  readonly versions: Readonly<Record<string, string | undefined>>;
}

/** @throws when the text of a licence is not known */
export async function createNotices(input: NoticesInput): Promise<string> {
  const { version, target, packages, versions } = input;
  const libraries = librariesOf(target);
  const document = (await Bun.file(BUN_DOCUMENT).text()).replace(/^---\n.*?\n---\n/s, "").trim();

  const listed = libraries.map(({ name, version_key, license, copyright, url }) => {
    const known = (version_key && versions[version_key]) || "";
    return `${name} ${known}`.trim().concat(`\n  ${license}\n  ${copyright}\n  ${url}`);
  });
  const without_text = packages.filter(({ texts }) => texts.length === 0);
  const ids = [
    "MIT",
    ...[...libraries, ...without_text].flatMap(({ license }) => licensesOf(license)),
  ];

  return `${[
    `What is in user-api ${version} for ${target.name}, and under which licences`,
    section(
      "Bun ".concat(versions["bun"] ?? ""),
      "Copyright (c) Oven. In its own words:",
      document,
    ),
    section(
      "The GNU Lesser General Public License",
      `JavaScriptCore and tinycc, both in Bun, are under it. The binary is the executable of Bun with
user-api appended, so whoever changes one of them builds Bun anew, as described above, and has
scripts/build.sh of user-api take it: --compile-executable-path=<path of that Bun>.`,
    ),
    section("Libraries linked into Bun, as far as known", ...listed),
    ...packages.map(describePackage),
    ...[...new Set(ids)].sort().map((id) => section(`Text of ${id}`, textOf(id))),
  ].join("\n\n")}\n`;
}
