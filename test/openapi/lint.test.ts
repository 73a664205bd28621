import { expect, test } from "bun:test";
import { openapiJson } from "../../src/http/app.ts";
import { enabled, made, run } from "./made.ts";

const linters: [string, (file: string) => string[]][] = [
  [
    "Spectral",
    (file) => {
      const options = ["--ruleset", "spectral.json", "--fail-severity", "hint"];
      return ["node_modules/.bin/spectral", "lint", ...options, file];
    },
  ],
  [
    "Redocly",
    (file) => {
      const options = ["--config", "redocly.yaml", "--max-problems", "1000"];
      return ["node_modules/.bin/redocly", "lint", ...options, file];
    },
  ],
];

const document = JSON.parse(openapiJson("1.2.3"));
const health = document.paths["/api/v1/health"];

/** A document with an error that every linter must report. */
const faulty = {
  ...document,
  paths: {
    ...document.paths,
    "/api/v1/health": { get: { ...health.get, operationId: "listUsers" } },
  },
};

/** Slow machines start node slowly. */
const TIMEOUT_MS = 60_000;

for (const [name, wordsFor] of linters) {
  test.skipIf(!enabled)(
    `\`${name}\` reports nothing, not even a hint, about the document`,
    async () => {
      const file = made(`openapi-${name}.json`);
      await Bun.write(file, openapiJson("1.2.3"));
      const { code, text } = await run(wordsFor(file));
      expect([code, text]).toEqual([
        0,
        expect.not.stringMatching(/You have \d+ warning|\d+ problem/),
      ]);
    },
    TIMEOUT_MS,
  );

  test.skipIf(!enabled)(
    `\`${name}\` reports the error in a faulty document`,
    async () => {
      const file = made(`faulty-${name}.json`);
      await Bun.write(file, JSON.stringify(faulty));
      const { code, text } = await run(wordsFor(file));
      expect([code, text]).toEqual([1, expect.stringMatching(/operationId/i)]);
    },
    TIMEOUT_MS,
  );
}
