// Two linters. openapi-typescript has the rules of Redocly, and applies them before it generates types.
import { expect, test } from "bun:test";
import { openapiJson } from "../../src/http/app.ts";
import { enabled, made, run } from "./made.ts";

const linters: [string, (file: string) => string[]][] = [
  [
    "Spectral",
    (file) => {
      const options = ["--ruleset", "spectral.yaml", "--fail-severity", "hint"];
      return ["node_modules/.bin/spectral", "lint", ...options, file];
    },
  ],
  [
    "openapi-typescript",
    (file) => ["node_modules/.bin/openapi-typescript", file, "--output", `${file}.d.ts`],
  ],
];

/** @returns the report of the linter, `[]` if it found neither errors nor warnings */
async function lint(name: string, wordsFor: (file: string) => string[], text: string) {
  const file = made(`linted-${name}.json`);
  await Bun.write(file, text);
  const { code, text: report } = await run(wordsFor(file));
  return code === 0 && !/[⚠✘✖]/.test(report) ? [] : report.split("\n");
}

/** Slow machines start node slowly. */
const TIMEOUT_MS = 60_000;

for (const [name, wordsFor] of linters) {
  test.skipIf(!enabled)(
    `${name} reports nothing, not even a hint, about the document`,
    async () => expect(await lint(name, wordsFor, openapiJson("1.2.3"))).toEqual([]),
    TIMEOUT_MS,
  );
}
