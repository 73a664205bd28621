import { test as testAlways } from "bun:test";
import { binary } from "../support/program.ts";

/** A test of the compiled program: it is skipped without one. */
export const test = testAlways.if(binary !== "");

/** The same, if a condition holds as well. Bun cannot chain conditions. */
export const testIf = (condition: boolean) => testAlways.if(binary !== "" && condition);
