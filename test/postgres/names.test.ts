// PostgreSQL runs a function of any schema of the path if its arguments match better, so a role that may CREATE in one could
// have its own run as the role of the service.
import { describe, expect, test } from "bun:test";
import { cluster } from "./postgres-harness.ts";

const root = `${import.meta.dir}/../../src/postgres`;
/** Functions of the service. Their arguments are of the exact types, so that a function of a later schema is no better. */
const ownFunctions: readonly string[] = ["feed_origin", "number_changes"];
/** Functions of TypeScript that have the name of one of PostgreSQL. */
const notInSql: readonly string[] = ["now", "replace"];

describe.if(cluster !== null)("SQL of src/postgres", () => {
  test("names the schema of each function and catalog of PostgreSQL", async () => {
    const rows = await cluster?.run<{ name: string }>(
      cluster.url,
      "select distinct proname::text as name from pg_proc where pronamespace = 'pg_catalog'::regnamespace",
    );
    const functions = new Set(rows?.map(({ name }) => name));
    const unqualified: string[] = [];
    for (const path of new Bun.Glob("**/*.{ts,sql}").scanSync(root)) {
      const text = (await Bun.file(`${root}/${path}`).text()).replace(
        /^ *(--|\*|\/\/|\/\*).*$/gm,
        "",
      );
      const others = path.endsWith(".sql") ? ownFunctions : [...ownFunctions, ...notInSql];
      // A snake_case name may be a function of an extension. A placeholder may stand for any function.
      const calls = text.matchAll(/(?<![.:\w])(?:([a-z]\w*)|\$\{\w+\})\(/g);
      const wrong = [...calls].filter(
        ([, name = "_"]) => (functions.has(name) || name.includes("_")) && !others.includes(name),
      );
      const catalogs = text.matchAll(/\b(?:from|join)\s+pg_(?!catalog\.)\w+/g);
      unqualified.push(...[...wrong, ...catalogs].map(([found]) => `${path}: ${found}`));
    }
    expect(unqualified).toEqual([]);
  });
});
