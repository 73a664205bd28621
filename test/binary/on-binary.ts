/** Tests of the compiled program, which are skipped without one. */
import { expect, test as testAlways } from "bun:test";
import { binary, type Outcome } from "../support/program.ts";

/** If a condition holds. Concurrent, as most wait for programs. */
export const testIf = (condition: boolean) => testAlways.concurrent.if(binary !== "" && condition);

export const test = testIf(true);

export const isRoot: boolean = process.getuid?.() === 0;

/** Expects that a program exits with 1, and says why in one line. @returns the line */
export async function failureOf(running: Promise<Outcome>): Promise<string> {
  const { code, stderr } = await running;
  expect([code, stderr]).toEqual([1, expect.stringMatching(/^.+\n$/)]);
  return stderr;
}
