import { expect } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import type { TemporaryDirectory } from "../support/directory.ts";
import { binary, type Outcome, runProgram } from "../support/program.ts";

const docs = `${import.meta.dir}/../../docs`;
const page = await Bun.file(`${docs}/moving-in.md`).text();
const blocks = [...page.matchAll(/^( *)```sh\n(.*?)^ *```$/gms)].map(
  ([, indent = "", block = ""]) => block.replaceAll(new RegExp(`^${indent}`, "gm"), ""),
);
const [
  save = "",
  importUsers = "",
  importOrders = "",
  countReasons = "",
  importCorrected = "",
  findTexts = "",
  importTexts = "",
  compare = "",
  shopify = "",
] = blocks;
export const commands = {
  /** Copies the rules to where the commands run. */
  copyRules: `cp "${docs}/examples/woo.jq" "${docs}/examples/shopify.py" .\n`,
  ...{ save, importUsers, importOrders, countReasons, importCorrected, findTexts, importTexts },
  ...{ compare, shopify },
};

/** Runs commands where the files of the earlier ones are. */
export function run(directory: TemporaryDirectory, ...parts: readonly string[]): Promise<Outcome> {
  const script = `user-api() { "${binary}" "$@"; }\nset -o pipefail\n${parts.join("")}`;
  return runProgram(["bash", "-c", script], {
    cwd: directory.path,
    env: { PATH: Bun.env["PATH"], DATABASE_URL: directory.at("shop.db") },
  });
}

export async function exportOf(
  directory: TemporaryDirectory,
  table: "users" | "orders",
): Promise<any[]> {
  return Bun.JSONL.parse((await run(directory, `user-api export ${table}\n`)).stdout);
}

export function correct(path: string, wrong: string | RegExp, right: string): void {
  const text = readFileSync(path, "utf8");
  expect(text).toMatch(wrong);
  writeFileSync(path, text.replaceAll(wrong, right));
}
