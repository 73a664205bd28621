/**
 * Lints the files that differ from a branch, and runs the tests that import them, directly or over other files.
 * @example bun scripts/test-changed.ts [branch]
 */
import { existsSync } from "node:fs";

const root = `${import.meta.dir}/..`;
process.chdir(root);

function git(...args: string[]): string[] {
  const { stdout, success } = Bun.spawnSync(["git", ...args], { stderr: "inherit" });
  if (!success) process.exit(1);
  return stdout.toString().split("\n").filter(Boolean);
}

const [, , branch = "main"] = process.argv;
const [fork = branch] = git("merge-base", branch, "HEAD");
const changed = [
  ...git("diff", "--name-only", fork),
  ...git("ls-files", "--others", "--exclude-standard"),
];

/** Who imports a file. Types alone do not count: the compiler checks them. */
const importers = new Map<string, string[]>();
const transpiler = new Bun.Transpiler({ loader: "ts" });
for (const path of new Bun.Glob("{src,test}/**/*.ts").scanSync()) {
  // The program imports everything, and most tests of a server start it.
  if (path.includes("node_modules/") || path === "src/main.ts") continue;
  for (const { path: specifier } of transpiler.scanImports(await Bun.file(path).text())) {
    if (!specifier.startsWith(".")) continue;
    const target = new URL(specifier, `file:///${path}`).pathname.slice(1);
    importers.getOrInsert(target, []).push(path);
  }
}

/** @returns tests; of a file that only the program leads to, those of its room */
function testsOf(file: string): string[] {
  const reached = new Set([file]);
  // Those that are added meanwhile have their turn as well.
  for (const path of reached) for (const one of importers.get(path) ?? []) reached.add(one);
  const tests = [...reached].filter((path) => path.endsWith(".test.ts") && existsSync(path));
  if (tests.length > 0 || !file.startsWith("src/")) return tests;
  const room = `test/${file.split("/")[1]}`;
  return existsSync(room) ? [`${room}/`] : [];
}

function run(...command: string[]): void {
  const { success } = Bun.spawnSync(command, { stdio: ["ignore", "inherit", "inherit"] });
  if (!success) process.exitCode = 1;
}

const biome = ["x", "--bun", "biome", "check", "--error-on-warnings", "--no-errors-on-unmatched"];
run(process.execPath, ...biome, ...changed.filter((path) => existsSync(path)));
const tests = new Set(["test/tidy.test.ts", ...changed.flatMap(testsOf)]);
run(process.execPath, "test", "--no-isolate", "--timeout=180000", ...[...tests].sort());
