/** In which form records come in and go out. */
import { fail } from "../error.ts";

export const file_formats = ["ndjson", "csv"] as const;
export type FileFormat = (typeof file_formats)[number];

/** One record of an input, not yet read. */
export interface RawRecord {
  /** In the file, from 1: where the record begins. */
  readonly line: number;
  /** Bytes, nearly. */
  readonly size: number;
  /** @returns the record as JSON would have it. @throws {AppError} invalid */
  parse(): unknown;
}

/** The one that was asked for, else that of the file's name. @param path `null` for a standard stream */
export function formatFor(requested: FileFormat | null, path: string | null): FileFormat {
  if (requested !== null) return requested;
  return path !== null && /\.csv$/i.test(path) ? "csv" : "ndjson";
}

export const bulk_tables = ["users", "orders"] as const;
export type BulkTable = (typeof bulk_tables)[number];

/** @throws {AppError} operator when the table has no such form */
export function requireSupportedFormat(table: BulkTable, format: FileFormat): void {
  if (table === "orders" && format === "csv") {
    fail("operator", "Cannot put orders into CSV, as each has a list of items: use ndjson");
  }
}
