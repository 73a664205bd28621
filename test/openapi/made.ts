/** Files and commands of these tests, in a subdirectory, so that they find the packages of this directory. */
import { expect } from "bun:test";
import { mkdirSync } from "node:fs";

/** Set by `make openapi-test`, which installs the packages of this directory. */
export const enabled: boolean = Bun.env["TEST_OPENAPI"] === "true";

const directory = `${import.meta.dir}/made`;
if (enabled) mkdirSync(directory, { recursive: true });

export function made(name: string): string {
  return `${directory}/${name}`;
}

export interface Outcome {
  readonly code: number;
  /** stdout, then stderr. */
  readonly text: string;
}

export async function run(
  args: readonly string[],
  environment: Readonly<Record<string, string>> = {},
): Promise<Outcome> {
  const env = { ...process.env, NO_COLOR: "1", ...environment };
  const child = Bun.spawn([...args], {
    cwd: import.meta.dir,
    env,
    stdout: "pipe",
    stderr: "pipe",
  });
  const texts = [new Response(child.stdout).text(), new Response(child.stderr).text()];
  const text = (await Promise.all(texts)).join("");
  return { code: await child.exited, text };
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
