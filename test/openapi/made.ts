/** Files and commands of these tests, in a subdirectory, so that they find the packages of this directory. */
import { expect } from "bun:test";
import { mkdirSync } from "node:fs";
import { runProgram } from "../support/program.ts";

/** Set by `make openapi-test`, which installs the packages of this directory. */
export const enabled: boolean = Bun.env["TEST_OPENAPI"] === "true";

const directory = `${import.meta.dir}/made`;
if (enabled) mkdirSync(directory, { recursive: true });

export function made(name: string): string {
  return `${directory}/${name}`;
}

/** @returns the exit code, and the text of stdout and then of stderr */
export async function run(args: readonly string[], environment: object = {}) {
  const env = { ...process.env, NO_COLOR: "1", ...environment };
  const { code, stdout, stderr } = await runProgram(args, { cwd: import.meta.dir, env });
  return { code, text: stdout + stderr };
}

export async function runTool(...[name, ...options]: string[]): Promise<void> {
  const { code, text } = await run([`node_modules/.bin/${name}`, ...options]);
  expect(code, text).toBe(0);
}

/** @param project a `tsconfig.json`, or its directory */
export async function expectCompiles(project: string): Promise<void> {
  const compiled = await run(["../../node_modules/.bin/tsc", "--project", project]);
  expect(compiled).toEqual({ code: 0, text: "" });
}
