/** File formats of import and export. */
import { fail } from "../error.ts";

export const fileFormats = ["ndjson", "csv"] as const;
export type FileFormat = (typeof fileFormats)[number];

/** One record of an input, not parsed yet. */
export interface RawRecord {
  /** Line of the file on which the record begins, from 1. */
  readonly line: number;
  /** Approximate size in bytes. */
  readonly size: number;
  /** @returns the record as a JSON value. @throws {AppError} invalid */
  parse(): unknown;
}

export const bulkTables = ["users", "orders"] as const;
export type BulkTable = (typeof bulkTables)[number];

/** What an export and an import have in common. */
export interface TransferOptions {
  readonly table: BulkTable;
  /** `null` to select it by the file extension. */
  readonly format: FileFormat | null;
  /** `null` for stdin or stdout. */
  readonly path: string | null;
}

/**
 * @returns the requested format, otherwise that of the file extension
 * @throws {AppError} invalid if the table cannot be written in this format
 */
export function formatFor({ table, format, path }: TransferOptions): FileFormat {
  const selected = format ?? (path !== null && /\.csv$/i.test(path) ? "csv" : "ndjson");
  if (table === "orders" && selected === "csv") {
    fail("invalid", "Orders cannot be CSV, because an order has a list of items: use ndjson");
  }
  return selected;
}
