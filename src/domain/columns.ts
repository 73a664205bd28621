/** The columns of users and orders follow from the schema of the record: each field has one of the same name. */
import { TypeGuard } from "@sinclair/typebox";
import type { Schema } from "../base/schema.ts";

export interface Column {
  readonly name: string;
  /** `word` is text that JSON never escapes, such as a time. `json` is an object or array, stored as text. */
  readonly type: "integer" | "word" | "text" | "json";
  readonly isNullable: boolean;
}

function columnOf(name: string, schema: Schema): Column {
  if (TypeGuard.IsOptional(schema)) throw new Error(`${name} must be nullable, not optional`);
  if (TypeGuard.IsUnion(schema)) {
    const [inner = schema] = schema.anyOf;
    const { type } = columnOf(name, inner);
    return { name, type: type === "word" ? "text" : type, isNullable: true };
  }
  if (TypeGuard.IsInteger(schema)) return { name, type: "integer", isNullable: false };
  if (TypeGuard.IsObject(schema) || TypeGuard.IsRecord(schema) || TypeGuard.IsArray(schema))
    return { name, type: "json", isNullable: false };
  if (schema["type"] !== "string") throw new Error(`no type of a column for ${name}`);
  const isWord = schema["enum"] !== undefined || schema["format"] === "date-time";
  return { name, type: isWord ? "word" : "text", isNullable: false };
}

/** @returns the columns, in the order of the fields. @throws if a field is optional, or of another type */
export function columnsOf(record: Schema): readonly Column[] {
  const fields: Readonly<Record<string, Schema>> = record["properties"];
  return Object.entries(fields).map(([name, schema]) => columnOf(name, schema));
}

export function columnNames(record: Schema): readonly string[] {
  return columnsOf(record).map(({ name }) => name);
}

/** @returns the JSON of a record, in which each `%s` stands for the JSON of the next column, or for its text in quotes */
export function jsonTemplate(columns: readonly Column[]): string {
  const members = columns.map(({ name, type }) => `"${name}":${type === "word" ? '"%s"' : "%s"}`);
  return `{${members.join(",")}}`;
}
