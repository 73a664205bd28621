/** Checks conventions: imports between layers, banned constructs, and documents that match the code. */
import { expect, test } from "bun:test";
import manifest from "../package.json" with { type: "json" };
import { settings, variableOf } from "../src/domain/settings.ts";
import { makeHarness } from "./cli/harness.ts";

const root = `${import.meta.dir}/..`;

type Source = Awaited<ReturnType<typeof readSources>>[number];

function layerOf(path: string): string {
  const [, directory, file] = path.split("/");
  return file === undefined ? "main" : `${directory}`;
}

/** @returns files with their paths, e.g. `src/http/app.ts` */
async function readSources(pattern: string) {
  const all = [...new Bun.Glob(pattern).scanSync(root)].sort();
  const paths = all.filter((path) => !/(?:node_modules|made)\//.test(path));
  return Promise.all(
    paths.map(async (path) => {
      const text = await Bun.file(`${root}/${path}`).text();
      const found = text.matchAll(/^(?:import|export)\b[^;]*?\bfrom "([^"]+)"|^import "([^"]+)"/gm);
      const imports = [...found].map(([, from, bare]) => from ?? bare ?? "");
      return { path, layer: layerOf(path), text, imports };
    }),
  );
}

/** The path that a relative import of this file leads to; `null` for a package. */
function targetOf({ path }: Source, specifier: string): string | null {
  if (!specifier.startsWith(".")) return null;
  return new URL(specifier, `file:///${path}`).pathname.slice(1);
}

function roomOf(path: string): string {
  return path.slice(0, path.lastIndexOf("/"));
}

const sources = await readSources("src/**/*.ts");

const packages: Record<string, RegExp> = {
  base: /^@sinclair\/typebox(\/|$)/,
  domain: /^@sinclair\/typebox$/,
  http: /^(elysia|@elysiajs\/[a-z]+|swagger-ui-dist\/.+)$/,
  sqlite: /^(bun:sqlite|node:(fs|path))$/,
  postgres: /^(bun|node:.+)$/,
  "object-storage": /^node:(fs\/promises|path)$/,
  cli: /^(bun:ffi|commander|csv-parse|entities\/decode|node:(buffer|fs|path|stream|tty|util))$/,
  main: /^node:tty$/,
};

const packagesOf: Record<string, RegExp> = {
  // The commands and SQLite write files in the same way, and share only the base.
  "src/base/temporary-file.ts": /^node:(fs|path)$/,
  "src/base/trusted-path.ts": /^node:(fs|path)$/,
  "src/base/mounts.ts": /^node:fs$/,
  // Settings and object storage have secrets.
  "src/base/secret.ts": /^node:fs$/,
  "src/base/email.ts": /^node:url$/,
  // The rules of a shop are JSON that only this command reads.
  "src/cli/move-in/rules.ts": /^@sinclair\/typebox$/,
  "src/http/connections/tls.ts": /^node:(crypto|tls)$/,
  // Asks SQLite what it does not report: the error of a read of the WAL.
  "src/sqlite/file/errors.ts": /^bun:(ffi|sqlite)$/,
  // Lowers the priority of its thread.
  "src/sqlite/tables/sums.worker.ts": /^bun:ffi$/,
  // Bounds the size of what it expands, which Bun's own function does not.
  "src/sqlite/archive/format.ts": /^node:zlib$/,
  // Its timers end with a signal, which those of Bun do not.
  "src/base/clock.ts": /^node:timers\/promises$/,
};

function mayImportFrom(source: Source, specifier: string): boolean {
  const { path, layer } = source;
  const target = targetOf(source, specifier);
  if (target === null) return (packagesOf[path] ?? packages[layer])?.test(specifier) === true;
  // The version is only there.
  if (target === "package.json") return path === "src/cli/build.ts";
  if (target.startsWith("src/http/") && layer === "cli")
    return path === "src/cli/serve.ts" || path === "src/cli/openapi.ts";
  const inner = layer === "base" ? ["base"] : ["base", "domain", layer];
  return target.startsWith("src/") && (layer === "main" || inner.includes(layerOf(target)));
}

test("files of src import only what their layer allows", () => {
  const forbidden = sources.flatMap((source) =>
    source.imports
      .filter((specifier) => !mayImportFrom(source, specifier))
      .map((specifier) => `${source.path}: ${specifier}`),
  );
  expect(forbidden).toEqual([]);
});

test("the directories of src import each other in no circle", () => {
  const rooms = new Map<string, Set<string>>();
  for (const source of sources) {
    const room = roomOf(source.path);
    const imported = rooms.getOrInsert(room, new Set());
    for (const specifier of source.imports) {
      const target = targetOf(source, specifier);
      if (target !== null && roomOf(target) !== room) imported.add(roomOf(target));
    }
  }
  // What imports no other room is no part of a circle.
  for (let size = 0; size !== rooms.size; ) {
    size = rooms.size;
    for (const [room, imported] of rooms)
      if (![...imported].some((other) => rooms.has(other))) rooms.delete(room);
  }
  expect([...rooms.keys()]).toEqual([]);
});

const bans: readonly { what: string; pattern: RegExp; but?: RegExp }[] = [
  { what: "a default export", pattern: /^export default/m, but: /\.d\.ts$/ },
  { what: "a barrel", pattern: /^export (?:type )?(?:\*|\{[^}]*\}) from/m },
  { what: "a module-level variable", pattern: /^(?:export )?let /m },
  {
    what: "a module-level singleton",
    pattern: /^(?:export )?const \w+ = new (?:Map|Set|Headers|Elysia|Database)\b/m,
  },
  { what: "a class but AppError", pattern: /^(?:export )?class (?!AppError)/m },
  { what: "process.exit", pattern: /process\.exit\(/, but: /^src\/main\.ts$/ },
  { what: "the environment", pattern: /(?:process|Bun)\.env/, but: /^src\/main\.ts$/ },
  { what: "an asynchronous transaction", pattern: /\b(?:transaction|write)\(\s*async/ },
  {
    what: "SQL made of values",
    // Statements may only interpolate constants: column lists, clauses, orders, settings.
    pattern:
      /\b(?:prepare|run)(?:<[^(]*>)?\(\s*`[^`]*\$\{(?!(?:columns|tokenColumns|direction|json|bytes|counted|selects|where|group|name|table|timeoutMs|available\.length|[A-Z_]+)\})/,
  },
  {
    what: "time, chance or a file in the archive of SQLite",
    pattern:
      /\bset(?:Timeout|Interval)\b|Bun\.sleep|Date\.now|performance\.now|AbortSignal\.timeout|randomUUID|Math\.random|zstdCompress\b|"node:(?:fs|timers)|from "\.\.\/disk\//,
    but: /^(?!src\/sqlite\/archive\/|src\/domain\/object-storage\.ts)/,
  },
  { what: "unfinished work", pattern: /\/[/*].*\b(?:TODO|FIXME|XXX|HACK)\b/ },
  { what: "console", pattern: /\bconsole\./ },
];

test.each(bans.map((ban) => [ban.what, ban] as const))("%s does not occur in src", (_, ban) => {
  const offenders = sources.filter(
    ({ path, text }) => ban.pattern.test(text) && !ban.but?.test(path),
  );
  expect(offenders.map(({ path }) => path)).toEqual([]);
});

const tests = await readSources("test/**/*.ts");

test.each([
  ["are neither skipped nor focused", /\b(?:test|describe|it)\.(?:only|todo|skip)\(/],
  ["have no backticks in their titles", /(?:\b(?:test|describe)|\))\(\s*(?:"[^"\n]*`|`[^`]*\\`)/],
])("tests %s", (_, pattern) => {
  expect(tests.filter(({ text }) => pattern.test(text)).map(({ path }) => path)).toEqual([]);
});

const FENCE = /^ *```.*\n([\s\S]*?)^ *```$/gm;

/** @returns the lines of code blocks, and inline code */
function codeOf(text: string): string[] {
  const blocks = [...text.matchAll(FENCE)].flatMap(([, block = ""]) => block.split("\n"));
  const spans = [...text.replace(FENCE, "").matchAll(/`([^`]+)`/g)].map(([, span = ""]) => span);
  return [...blocks, ...spans];
}

async function readDocuments(...patterns: string[]) {
  const paths = patterns.flatMap((pattern) => [...new Bun.Glob(pattern).scanSync(root)].sort());
  return Promise.all(
    paths.map(async (path) => {
      const text = await Bun.file(`${root}/${path}`).text();
      return { path, text, code: codeOf(text) };
    }),
  );
}

const files = ["*", ".ci/*", ".github/**/*", "{bench,data,deploy,docs,scripts,src,test}/**/*"]
  .flatMap((pattern) => [...new Bun.Glob(pattern).scanSync({ cwd: root, dot: true })])
  .filter((path) => !path.includes("node_modules/"));

/** All text that may read environment variables. */
const program = (
  await Promise.all(
    files
      .filter((path) => /^(src|scripts|test|deploy|\.ci)\/|^(Makefile|Dockerfile)$/.test(path))
      .map((path) => Bun.file(`${root}/${path}`))
      .map(async (file) => ((await file.exists()) ? file.text() : "")),
  )
).join("\n");

/** @returns whether the command exists and has the flags, e.g. of `token create laptop --scope read` */
async function isCommand(line: string): Promise<boolean> {
  const [first = "", second = ""] = line.split(" ");
  if (["help", "version", "openapi"].includes(first)) return true;
  const words = first === "token" ? [first, second] : [first];
  using world = makeHarness();
  const { stdout: help } = await world.run(...words, "--help");
  const flags = line.match(/(?<= )--[a-z-]+/g) ?? [];
  const isFound = help.startsWith(`Usage: user-api ${words.join(" ")} `);
  return isFound && flags.every((flag) => help.includes(flag));
}

/** What a document may name, and how to tell whether it exists. */
const references: readonly {
  what: string;
  pattern: RegExp;
  exists: (name: string) => boolean | Promise<boolean>;
}[] = [
  {
    what: "file",
    pattern:
      /(?<![\w./:…<>-])(?:[\w.*-]+\/)*[\w*-][\w.*-]*\.(?:ts|js|sh|sql|css|html|svg|service|toml|lua|ya?ml|json)\b(?!\()/g,
    exists: (name) =>
      // Files that a reader creates with the examples.
      /^(user-api\.d\.ts|(user|orders|old|new|page|response|rules|ids|totals|id|copy\/users\/1)\.json)$/.test(
        name,
      ) ||
      // A client may refer to a checkout next to it, and to a file in its own directory.
      files.some((path) =>
        new Bun.Glob(`{,**/}${name.replace(/^(?:\.\.\/user-api|\.)\//, "")}`).match(path),
      ),
  },
  {
    what: "directory",
    pattern: /(?<![\w./-])(?:bench|data|deploy|docs|scripts|src|test)\/(?:[\w-]+\/)*(?![\w.*-])/g,
    exists: (name) => files.some((path) => path.startsWith(name)),
  },
  {
    what: "target of make",
    pattern: /(?<=\bmake )[a-z-]+/g,
    exists: (name) => new RegExp(`^${name}:`, "m").test(makefile),
  },
  {
    what: "command",
    pattern: /(?<=\buser-api )[a-z]+(?![\w=-])[^|<#;)&\\]*/g,
    exists: (line) => isCommand(line.trim()),
  },
  {
    what: "setting",
    // Not capabilities of Linux, nor variables of other programs that are ignored.
    pattern: /\b(?!CAP_|AWS_(?:ENDPOINT_URL|DEFAULT_REGION)\b)[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b/g,
    exists: (name) => program.includes(name),
  },
  {
    what: "metric",
    pattern: /\b(?:http|process|user_api)_[a-z_]+\b/g,
    exists: (name) => sources.some(({ text }) => text.includes(`"${name}"`)),
  },
];

const makefile = await Bun.file(`${root}/Makefile`).text();
const documents = await readDocuments("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs/*.md");

test.each(references.map((reference) => [reference.what, reference] as const))(
  "documents name no %s that does not exist",
  async (_, { pattern, exists }) => {
    const missing: string[] = [];
    for (const { path, code } of documents)
      for (const name of new Set(code.flatMap((line) => line.match(pattern) ?? [])))
        if (!(await exists(name))) missing.push(`${path}: ${name}`);
    expect(missing).toEqual([]);
  },
);

test("comments name no file that does not exist", async () => {
  const missing: string[] = [];
  for (const path of files.filter((path) => /^src\/.*\.(?:ts|sql)$/.test(path))) {
    const text = await Bun.file(`${root}/${path}`).text();
    const comments = text.match(/(?:^\s*(?:\/?\*|\/\/|--) |\/\*\* ).*$/gm) ?? [];
    const names = comments.flatMap((line) => line.match(/[\w/.-]+\.(?:ts|sql|sh)\b/g) ?? []);
    const lacks = (name: string) => !files.some((file) => `/${file}`.endsWith(`/${name}`));
    missing.push(...names.filter(lacks).map((name) => `${path}: ${name}`));
  }
  expect(missing).toEqual([]);
});

test("documents have no broken links to files and headings", async () => {
  const all = await readDocuments("*.md", "llms.txt", "docs/*.md", "bench/*.md");
  const headings = new Map(
    all.map(({ path, text }) => [
      path,
      [...text.replace(FENCE, "").matchAll(/^#+ (.*)$/gm)].map(([, title = ""]) =>
        title
          .toLowerCase()
          .replace(/[^\p{L}\p{N}_ -]/gu, "")
          .replaceAll(" ", "-"),
      ),
    ]),
  );
  const broken: string[] = [];
  for (const { path, text } of all) {
    for (const [, link = ""] of text.replace(FENCE, "").matchAll(/\]\(([^)\s]+)\)/g)) {
      if (/^https?:/.test(link)) continue;
      const { pathname, hash } = new URL(link, `file:///${path}`);
      const target = pathname.slice(1);
      const found =
        hash === ""
          ? files.includes(target)
          : headings.get(target)?.includes(decodeURIComponent(hash.slice(1)));
      if (!found) broken.push(`${path}: ${link}`);
    }
  }
  expect(broken).toEqual([]);
});

test("llms.txt has one line for each page", async () => {
  const lines = (await Bun.file(`${root}/llms.txt`).text()).split("\n");
  const pages = files.filter((path) => /^(?:docs|bench)\/[\w-]+\.md$|^[A-Z]+\.md$/.test(path));
  const named = lines.flatMap((line) => /^- \[.*\]\((.*)\): ./.exec(line)?.[1] ?? []);
  expect(named.sort()).toEqual(pages.sort());
});

test("README.md and docs/releases.md download the version of package.json", async () => {
  for (const path of ["README.md", "docs/releases.md"]) {
    const text = await Bun.file(`${root}/${path}`).text();
    const versions = text.match(/(?<=download\/v|user-api[-:])\d+\.\d+\.\d+/g);
    expect([path, ...new Set(versions)]).toEqual([path, manifest.version]);
  }
});

test("docs/configuration.md has every setting with its default", async () => {
  const text = await Bun.file(`${root}/docs/configuration.md`).text();
  for (const [name, { default: fallback }] of Object.entries(settings)) {
    const variable = variableOf(name);
    const row = text.split("\n").find((line) => line.startsWith(`| \`${variable}\``));
    expect([variable, row]).toEqual([variable, expect.stringContaining(fallback ?? "none")]);
  }
});

test("docs/architecture.md names every directory of src", async () => {
  const text = await Bun.file(`${root}/docs/architecture.md`).text();
  const named = new Set<string>();
  for (const [, path, contents = ""] of text.matchAll(/^\| `(src\/.*?)` \| (.*)/gm)) {
    named.add(`${path}`);
    for (const [, inner] of contents.matchAll(/`([a-z-]+\/)`/g)) named.add(`${path}${inner}`);
  }
  const directories = new Set(sources.map(({ path }) => path.replace(/[^/]+$/, "")));
  expect([...directories].filter((path) => !named.has(path))).toEqual([]);
});
