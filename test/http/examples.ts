import { expect } from "bun:test";
import { chmodSync, readdirSync, readFileSync } from "node:fs";
import type { TemporaryDirectory } from "../support/directory.ts";
import { type Running, startProgram } from "../support/program.ts";
import type { TestServer } from "./server.ts";

const docs = `${import.meta.dir}/../../docs`;

const commands: Readonly<Record<string, string>> = {
  "client.mts": process.execPath,
  "client.py": "python3",
  "client.sh": "sh",
  "follow.mts": process.execPath,
  "follow.py": "python3",
  "follow.sh": "bash",
  "merge.sh": "bash",
};

/** @param file e.g. `client.py`, in docs/examples */
export function canRun(file: string): boolean {
  const needed = file.endsWith(".sh") ? ["curl", "jq"] : [];
  return [commands[file] ?? "", ...needed].every((name) => Bun.which(name) !== null);
}

/** Lets a program wait a hundredth of the time before it repeats a request. Those of a shell find another `sleep`. */
function impatient(file: string, source: string): string {
  if (file.endsWith(".sh")) return source;
  const adapted = source
    .replace("* 1000)", "* 10)")
    .replace("time.sleep(", "(lambda s: time.sleep(s / 100))(");
  expect(adapted).not.toBe(source);
  return adapted;
}

/**
 * Starts a program in a separate directory, with pages of five records.
 * @param source the text of the program; `null` for that of docs/examples
 */
export async function startExample(
  directory: TemporaryDirectory,
  file: string,
  url: string,
  env: Readonly<Record<string, string>>,
  source: string | null = null,
): Promise<Running> {
  const text = source ?? (await Bun.file(`${docs}/examples/${file}`).text());
  expect(text).toContain("http://127.0.0.1:3000");
  const adapted = impatient(file, text)
    .replace("http://127.0.0.1:3000", url)
    .replaceAll("limit=50", "limit=5");
  await Bun.write(directory.at(file), adapted);
  await Bun.write(directory.at("bin/sleep"), "#!/bin/sh\n");
  chmodSync(directory.at("bin/sleep"), 0o755);
  return startProgram([commands[file] ?? "", directory.at(file)], {
    cwd: directory.path,
    env: { PATH: `${directory.at("bin")}:${Bun.env["PATH"]}`, TMPDIR: directory.path, ...env },
  });
}

/** Polls until the copy of a program that follows is equal to the database, or the test times out. */
export async function untilInStep(
  server: TestServer,
  directory: TemporaryDirectory,
  example: Running,
): Promise<void> {
  const tables = ["users", "orders"];
  const pages = tables.map((table) => server.call("GET", `/${table}?limit=1000`));
  const stored = (await Promise.all(pages)).map(({ json }) => json.data);
  const copyOf = (table: string) => {
    const names = readdirSync(directory.at(`copy/${table}`));
    return names
      .map((name) => JSON.parse(readFileSync(directory.at(`copy/${table}/${name}`), "utf8")))
      .sort((left, right) => left.id - right.id);
  };
  const isInStep = () => {
    try {
      return Bun.deepEquals(tables.map(copyOf), stored);
    } catch {
      // It is incomplete, or changes while it is read.
      return false;
    }
  };
  while (!isInStep()) {
    if (example.hasExited()) throw new Error((await example.ended).stderr);
    await Bun.sleep(50);
  }
}

/** Does not wait until its output ends: curl, which a shell has started, still has it open. */
export async function killExample(example: Running): Promise<void> {
  example.kill("SIGKILL");
  while (!example.hasExited()) await Bun.sleep(5);
}
