import { expect } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import type { TemporaryDirectory } from "../support/directory.ts";
import { binary, type Outcome, runProgram } from "../support/program.ts";

const docs = `${import.meta.dir}/../../docs`;
const page = await Bun.file(`${docs}/moving-in.md`).text();
const blocks = [...page.matchAll(/^( *)```sh\n(.*?)^ *```$/gms)].map(
  ([, indent = "", block = ""]) => block.replaceAll(new RegExp(`^${indent}`, "gm"), ""),
);
const names = [
  ...(["save", "importUsers", "importOrders", "countReasons", "importCorrected"] as const),
  ...(["findTexts", "importTexts", "compare", "shopify"] as const),
];
const named = Object.fromEntries(names.map((name, at) => [name, blocks[at] ?? ""]));
export const commands = {
  ...(named as Record<(typeof names)[number], string>),
  copyRules: `cp "${docs}/examples/woo.jq" "${docs}/examples/shopify.py" .\n`,
};

/** Runs commands where the files of the earlier ones are. */
export function run(directory: TemporaryDirectory, ...parts: readonly string[]): Promise<Outcome> {
  const script = `user-api() { "${binary}" "$@"; }\nset -o pipefail\n${parts.join("")}`;
  return runProgram(["bash", "-c", script], {
    cwd: directory.path,
    env: { PATH: Bun.env["PATH"], DATABASE_URL: directory.at("shop.db") },
  });
}

type Table = "users" | "orders";

export async function exportOf(directory: TemporaryDirectory, table: Table): Promise<any[]> {
  return Bun.JSONL.parse((await run(directory, `user-api export ${table}\n`)).stdout);
}

export function correct(path: string, wrong: string | RegExp, right: string): void {
  const text = readFileSync(path, "utf8");
  expect(text).toMatch(wrong);
  writeFileSync(path, text.replaceAll(wrong, right));
}
