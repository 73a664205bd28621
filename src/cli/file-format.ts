/** File formats of import and export. */
import { fail } from "../error.ts";

export const file_formats = ["ndjson", "csv"] as const;
export type FileFormat = (typeof file_formats)[number];

/** One record of an input, not parsed yet. */
export interface RawRecord {
  /** Line of the file on which the record begins, from 1. */
  readonly line: number;
  /** Approximate size in bytes. */
  readonly size: number;
  /** @returns the record as a JSON value. @throws {AppError} invalid */
  parse(): unknown;
}

/** @returns the requested format, otherwise that of the file extension. @param path `null` for a standard stream */
export function formatFor(requested: FileFormat | null, path: string | null): FileFormat {
  if (requested !== null) return requested;
  return path !== null && /\.csv$/i.test(path) ? "csv" : "ndjson";
}

export const bulk_tables = ["users", "orders"] as const;
export type BulkTable = (typeof bulk_tables)[number];

/** @throws {AppError} invalid if the table cannot be written in this format */
export function requireSupportedFormat(table: BulkTable, format: FileFormat): void {
  if (table === "orders" && format === "csv") {
    fail("invalid", "Orders cannot be CSV, because an order has a list of items: use ndjson");
  }
}
