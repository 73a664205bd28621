// Two linters. openapi-typescript has the rules of Redocly, and applies them before it generates types.
import { expect, test } from "bun:test";
import { openapiJson } from "../../src/http/app.ts";
import { enabled, made, run } from "./made.ts";

/** Slow machines start node slowly. */
const TIMEOUT_MS = 60_000;

test.skipIf(!enabled).each<[linter: string, ...options: string[]]>([
  ["spectral", "lint", "--ruleset", "spectral.yaml", "--fail-severity", "hint"],
  ["openapi-typescript", "--output", made("linted.d.ts")],
])(
  "%s reports nothing, not even a hint, about the document",
  async (...[linter, ...options]) => {
    const file = made("linted.json");
    await Bun.write(file, openapiJson("1.2.3"));
    const { code, text } = await run([`node_modules/.bin/${linter}`, ...options, file]);
    expect([code, /[⚠✘✖]/.test(text)], text).toEqual([0, false]);
  },
  TIMEOUT_MS,
);
