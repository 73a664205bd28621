import { readFileSync, statSync } from "node:fs";
import { AppError, fail, fileProblem } from "./error.ts";
import { quoteReadably } from "./readable-text.ts";

export type Environment = Readonly<Record<string, string | undefined>>;

/** A larger file was named by mistake, e.g. a database. */
const MAX_BYTES = 2 ** 18;

/** @throws {AppError} operator if it is not a regular file, or too large */
export function readSettingFile(path: string): string {
  const file = statSync(path);
  // A device or a pipe could be read without end.
  if (!file.isFile()) fail("operator", "it is not a regular file");
  if (file.size > MAX_BYTES) fail("operator", "it is too large");
  return readFileSync(path, "utf8");
}

/** @param name of its variable or flag. @returns the text without its line end. @throws {AppError} operator, not repeating it */
export function readSecretFile(name: string, path: string, pattern: RegExp, expected: string) {
  try {
    const text = readSettingFile(path).replace(/\r?\n$/, "");
    return pattern.test(text) ? text : fail("operator", `it must contain ${expected}`);
  } catch (error) {
    const problem = error instanceof AppError ? error.message : fileProblem(error);
    if (problem === null) throw error;
    return fail("operator", `Cannot read ${name} ${quoteReadably(path)}: ${problem}`);
  }
}

/**
 * @returns the value, or the line in the file that `NAME_FILE` names; `null` if neither is set. Empty counts as not set
 * @throws {AppError} operator if both are set, or the file cannot be read; it repeats nothing of the file
 */
export function readSecret(environment: Environment, name: string): string | null {
  const value = environment[name] || null;
  const path = environment[`${name}_FILE`] || null;
  if (path === null) return value;
  const advice = "unset one, or set it to an empty value";
  if (value !== null) fail("operator", `${name} and ${name}_FILE are both set: ${advice}`);
  // The rest could become a part of a file name or of a header.
  return readSecretFile(`${name}_FILE`, path, /^\P{Cc}+$/u, "one line of text");
}
