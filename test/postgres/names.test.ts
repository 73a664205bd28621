// PostgreSQL prefers a function of any schema of the path if its arguments match better.
import { expect, test } from "bun:test";
import { runOn } from "./instance.ts";
import { cluster } from "./postgres-harness.ts";

/** Functions of the service, which are called with arguments of the exact types, and of TypeScript. */
const others = ["feed_origin", "number_changes", "now", "replace"];

test.if(cluster !== null)("SQL names the schema of each function and catalog", async () => {
  const select = "select distinct proname::text as name from pg_proc";
  const rows = await runOn<{ name: string }>(`${cluster?.url}`, select);
  const functions = new Set(rows.map(({ name }) => name));
  const unqualified: string[] = [];
  for (const path of new Bun.Glob("src/postgres/**/*.{ts,sql}").scanSync()) {
    const text = (await Bun.file(path).text()).replace(/^ *(--|\*|\/\/|\/\*).*$/gm, "");
    // A snake_case name may be one of an extension. `unnest` of several arrays is syntax.
    const calls = text.matchAll(/(?<![.:\w])(?!unnest\([\w.]+,)(?:([a-z]\w*)|\$\{\w+\})\(/g);
    const isWrong = (name: string) => functions.has(name) || name.includes("_");
    const found = [...calls].filter(([, name = "_"]) => isWrong(name) && !others.includes(name));
    found.push(...text.matchAll(/\b(?:from|join)\s+pg_(?!catalog\.)\w+|pg_(?:try_)?advisory/g));
    unqualified.push(...found.map(([what]) => `${path}: ${what}`));
  }
  expect(unqualified).toEqual([]);
});
