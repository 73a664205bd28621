/** Settings as JSON. Members whose name begins with `//` are comments. */
import { fail, messageOf } from "../../base/error.ts";
import type { Schema } from "../../base/schema.ts";
import { readSettingFile } from "../../base/secret.ts";

/** @returns the values, each after its description */
export function formatSettings<Values extends object>(
  schemas: Readonly<Record<keyof Values, Schema>>,
  values: Values,
): string {
  const lines = Object.entries(values).flatMap(([name, value]) => [
    `  "// ${name}": ${JSON.stringify(schemas[name as keyof Values].description)}`,
    `  "${name}": ${JSON.stringify(value)}`,
  ]);
  return `{\n${lines.join(",\n")}\n}\n`;
}

/** @throws {AppError} operator, also for an error of `parse` */
export function readSettings<Values>(path: string, parse: (given: unknown) => Values): Values {
  const uncommented = (key: string, value: unknown) => (key.startsWith("//") ? undefined : value);
  try {
    return parse(JSON.parse(readSettingFile(path), uncommented));
  } catch (error) {
    return fail("operator", `Cannot read ${path}: ${messageOf(error)}`);
  }
}
