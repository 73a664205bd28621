/** The rules of the house that a machine can check: who imports whom, and what is not done here. */
import { describe, expect, test } from "bun:test";
import { settings } from "../src/config.ts";
import { renamed_files } from "./pending.ts";

const root = `${import.meta.dir}/..`;

interface Source {
  /** As in `src/http/app.ts`. */
  readonly path: string;
  readonly layer: string;
  readonly text: string;
  readonly imports: readonly string[];
}

function layerOf(path: string): string {
  const [, folder, file] = path.split("/");
  if (file !== undefined) return `${folder}`;
  return folder === "main.ts" ? "main" : "domain";
}

async function readSources(pattern: string): Promise<Source[]> {
  const all = [...new Bun.Glob(pattern).scanSync(root)].sort();
  const paths = all.filter((path) => !path.includes("node_modules/"));
  return Promise.all(
    paths.map(async (path) => {
      const text = await Bun.file(`${root}/${path}`).text();
      const found = text.matchAll(/^(?:import|export)\b[^;]*?\bfrom "([^"]+)"|^import "([^"]+)"/gm);
      const imports = [...found].map(([, from, bare]) => from ?? bare ?? "");
      return { path, layer: layerOf(path), text, imports };
    }),
  );
}

/** The layer that a relative import of this file leads to; `null` for a package. */
function targetLayer({ path }: Source, specifier: string): string | null {
  if (!specifier.startsWith(".")) return null;
  const { pathname } = new URL(specifier, `file:///${path}`);
  return pathname.startsWith("/src/") ? layerOf(pathname.slice(1)) : "outside";
}

const sources = await readSources("src/**/*.ts");

const may_import: Record<string, readonly string[]> = {
  domain: ["domain"],
  http: ["domain", "http"],
  sqlite: ["domain", "sqlite"],
  postgres: ["domain", "postgres"],
  cli: ["domain", "cli"],
  main: ["domain", "http", "sqlite", "postgres", "cli"],
};

const packages: Record<string, RegExp> = {
  domain: /^@sinclair\/typebox(\/|$)/,
  http: /^(elysia|@elysiajs\/[a-z]+|prom-client(\/lib\/[a-z]+\.js)?|swagger-ui-dist\/.+\.br)$/,
  sqlite: /^(bun:sqlite|node:(fs|path))$/,
  postgres: /^(bun|node:.+)$/,
  cli: /^(commander|csv-parse|csv-stringify\/sync|cli-progress|node:(https?|fs|stream))$/,
  main: /^node:tty$/,
};

describe("layers", () => {
  test.each(sources.map((source) => [source.path, source] as const))(
    "`%s` imports inwards only when it imports at all",
    (path, source) => {
      for (const specifier of source.imports) {
        const target = targetLayer(source, specifier);
        if (target === null) {
          expect([path, specifier]).toEqual([
            path,
            expect.stringMatching(packages[source.layer] ?? /^$/),
          ]);
        } else if (target === "outside") {
          // The version stands in package.json alone.
          expect([path, specifier]).toEqual(["src/cli/program.ts", "../../package.json"]);
        } else if (target === "http" && source.layer === "cli") {
          expect(["src/cli/serve.ts", "src/cli/openapi.ts"]).toContain(path);
        } else {
          expect([path, specifier, may_import[source.layer]]).toEqual([
            path,
            specifier,
            expect.arrayContaining([target]),
          ]);
        }
      }
    },
  );
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
    // Only what is constant may stand in a statement: column lists, clauses, settings.
    pattern:
      /\b(?:prepare|run)(?:<[^(]*>)?\(\s*`[^`]*\$\{(?!(?:columns|counted|where|name|table|keys_table|patience_ms|known\.length|[A-Z_]+)\})/,
  },
  { what: "unfinished work", pattern: /\/[/*].*\b(?:TODO|FIXME|XXX|HACK)\b/ },
  { what: "console", pattern: /\bconsole\./ },
];

describe("bans", () => {
  test.each(bans.map((ban) => [ban.what, ban] as const))(
    "`%s` stands nowhere in src when read",
    (_what, ban) => {
      const offenders = sources.filter(
        ({ path, text }) => ban.pattern.test(text) && !ban.but?.test(path),
      );
      expect(offenders.map(({ path }) => path)).toEqual([]);
    },
  );

  test("`tests` are neither skipped nor focused when committed", async () => {
    const tests = await readSources("test/**/*.ts");
    const pattern = /\b(?:test|describe|it)\.(?:only|todo|skip)\(/;
    expect(tests.filter(({ text }) => pattern.test(text)).map(({ path }) => path)).toEqual([]);
  });
});

describe("documents", () => {
  test("`docs/configuration.md` has every setting with its default", async () => {
    const text = await Bun.file(`${root}/docs/configuration.md`).text();
    for (const { variable, fallback } of Object.values(settings)) {
      const row = text.split("\n").find((line) => line.startsWith(`| \`${variable}\``));
      expect([variable, row]).toEqual([variable, expect.stringContaining(fallback ?? "none")]);
    }
  });

  test("`docs/architecture.md` names every file of src", async () => {
    const text = await Bun.file(`${root}/docs/architecture.md`).text();
    const words = new Set(text.split(/[^\w.-]+/));
    const missing = sources
      .map(({ path }) => renamed_files[path] ?? path)
      .filter((path) => !path.endsWith(".d.ts") && !words.has(path.split("/").at(-1) ?? ""));
    expect(missing).toEqual([]);
  });
});
