import { closeSync, openSync, writeSync } from "node:fs";
import { query } from "../sqlite/open-database.ts";

/** SQLite's default. */
export const PAGE_BYTES = 4096;

/** SQLite leaves the start of a file to its header, which identifies it. */
const HEADER_BYTES = 100;

/**
 * Overwrites a page of a SQLite file with one value, as a failing disk does. No server may watch the file, whose time
 * changes.
 * @param page its number, from 1
 */
export function damagePage(path: string, page: number, value = 0xff): void {
  const start = page === 1 ? HEADER_BYTES : (page - 1) * PAGE_BYTES;
  const size = page * PAGE_BYTES - start;
  const file = openSync(path, "r+");
  writeSync(file, Buffer.alloc(size, value), 0, size, start);
  closeSync(file);
}

/** @returns the number of the first page of a table or an index */
export function rootPageOf(path: string, name: string): number {
  const [page] = query(path, `select rootpage from sqlite_schema where name = '${name}'`);
  if (page === undefined) throw new Error(`there is no ${name} in ${path}`);
  return Number(page);
}
