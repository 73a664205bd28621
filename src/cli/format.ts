/** In which form records come in and go out. */
import { fail } from "../error.ts";

export const formats = ["ndjson", "csv"] as const;
export type Format = (typeof formats)[number];

/** One record of an input, not yet read. */
export interface Entry {
  /** In the file, from 1: where the record begins. */
  readonly line: number;
  /** Bytes, nearly. */
  readonly size: number;
  /** @returns the record as JSON would have it. @throws {AppError} invalid */
  read(): unknown;
}

/** The one that was asked for, else that of the file's name. @param path `null` for a standard stream */
export function formatFor(asked: Format | null, path: string | null): Format {
  if (asked !== null) return asked;
  return path !== null && /\.csv$/i.test(path) ? "csv" : "ndjson";
}

export const tables = ["users", "orders"] as const;
export type Table = (typeof tables)[number];

/** @throws {AppError} operator when the table has no such form */
export function requireFormat(table: Table, format: Format): void {
  if (table === "orders" && format === "csv") {
    fail("operator", "Cannot put orders into CSV, as each has a list of items: use ndjson");
  }
}
