/** Programs of the documentation, in what they are written for. */
import { expect } from "bun:test";
import { chmodSync, readdirSync, readFileSync } from "node:fs";
import type { TemporaryDirectory } from "../support/directory.ts";
import { type Running, startProgram } from "../support/program.ts";
import type { TestServer } from "./server.ts";

const docs = `${import.meta.dir}/../../docs`;

interface Runtime {
  readonly command: string;
  /** The file in docs/examples that its programs import; `null` for scripts of a shell. */
  readonly client: string | null;
  readonly canRun: boolean;
}

const areInstalled = (...names: readonly string[]) =>
  names.every((name) => Bun.which(name) !== null);

function isNode(range: string): boolean {
  if (!areInstalled("node")) return false;
  const { stdout } = Bun.spawnSync(["node", "--version"]);
  return Bun.semver.satisfies(`${stdout}`.trim().slice(1), range);
}

const hasTools = areInstalled("curl", "jq");

/** By name, with what they need. */
export const runtimes = {
  Bun: { command: process.execPath, client: "client.ts", canRun: true },
  "Node 22.18": { command: "node", client: "client.ts", canRun: isNode(">=22.18.0") },
  Python: { command: "python3", client: "client.py", canRun: areInstalled("python3") },
  "sh with curl and jq": { command: "sh", client: null, canRun: hasTools },
  "Bash with curl and jq": { command: "bash", client: null, canRun: hasTools },
} as const satisfies Readonly<Record<string, Runtime>>;

export type RuntimeName = keyof typeof runtimes;

/** @param file e.g. `client.ts`, in docs/examples */
export const exampleOf = (file: string): Promise<string> =>
  Bun.file(`${docs}/examples/${file}`).text();

/** @returns the blocks of code in this language of a page, e.g. `clients.md` */
export async function blocksOf(page: string, language: string): Promise<string[]> {
  const text = await Bun.file(`${docs}/${page}`).text();
  const blocks = text.matchAll(new RegExp(`^\`\`\`${language}\n(.*?)^\`\`\`$`, "gms"));
  return [...blocks].map(([, block = ""]) => block);
}

function replaced(source: string, pattern: RegExp, replacement: string): string {
  expect(source).toMatch(pattern);
  return source.replaceAll(pattern, replacement);
}

/** The client waits a hundredth of the time before it repeats a request, and reads pages of five records. */
function impatient(source: string): string {
  const adapted = replaced(source, /\blimit(["']?): 50\b/g, "limit$1: 5");
  return replaced(adapted, /\breturn seconds /g, "return seconds / 100 ");
}

/** Starts a program in a separate directory, with the client that it imports. */
export async function startExample(
  directory: TemporaryDirectory,
  name: RuntimeName,
  source: string,
  url: string,
  env: Readonly<Record<string, string>>,
): Promise<Running> {
  const { command, client } = runtimes[name];
  const program = replaced(source, /http:\/\/127\.0\.0\.1:3000/g, url);
  const file = directory.at(`program${client?.slice(-3) ?? ""}`);
  await Bun.write(file, program.replaceAll("limit=50", "limit=5"));
  if (client !== null) await Bun.write(directory.at(client), impatient(await exampleOf(client)));
  await Bun.write(directory.at("bin/sleep"), "#!/bin/sh\n");
  chmodSync(directory.at("bin/sleep"), 0o755);
  return startProgram([command, file], {
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
