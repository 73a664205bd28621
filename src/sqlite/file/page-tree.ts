/** Rejects a file in which SQLite would read without end. Nothing can interrupt it, not even while it opens a file. */
import { closeSync, fstatSync, openSync, readSync } from "node:fs";
import { fail } from "../../base/error.ts";
import { isAtRest } from "./connection.ts";
import { readHeader, requirePermission, sizeOf } from "./files.ts";

/** Types of pages. @see https://www.sqlite.org/fileformat2.html#b_tree_pages */
const [INTERIOR_INDEX, INTERIOR_TABLE, LEAF_TABLE] = [2, 5, 13];
/** Bytes of a value, by its type. Other types are texts. @see https://www.sqlite.org/fileformat2.html#record_format */
const VALUE_BYTES = [0, 1, 2, 3, 4, 6, 8, 8, 0, 0];

/** Trees that grow with the data. SQLite reads others in whole, those of `analyze` whenever it opens the file. */
export const LARGE_TREE =
  /^(create table buckets |create (table|(unique )?index \w+ on) (users|orders|idempotency_keys|changes) |sqlite_autoindex_(users|idempotency_keys)_1)/i;

function readVarint(page: Buffer, start: number): [value: number, end: number] {
  let value = 0;
  for (let at = start; ; at += 1) {
    const byte = page.readUInt8(at);
    value = value * 128 + (byte % 128);
    if (byte < 128 || at === start + 8) return [value, at + 1];
  }
}

/** @returns the root page of an entry of the schema; 0 if it has none, or its tree is large; `null` if it is hidden */
function smallRootOf(page: Buffer, cell: number, pageBytes: number): number | null {
  const [, id] = readVarint(page, cell);
  const [, record] = readVarint(page, id);
  let [end, at] = readVarint(page, record);
  end += record;
  function next(): { type: number; start: number; text: string } {
    const start = end;
    const [type, typeEnd] = readVarint(page, at);
    at = typeEnd;
    end += VALUE_BYTES[type] ?? Math.floor(type / 2) - 6;
    return { type, start, text: page.toString("latin1", start, end) };
  }
  const [, name, , root, sql] = [next(), next(), next(), next(), next()] as const;
  // SQLite writes it as a short integer, and not in another page.
  const isInteger = root.type < VALUE_BYTES.length && root.text.length <= 6;
  if (!isInteger || sql.start > record + Math.max(64, pageBytes / 10)) return null;
  const isLarge = LARGE_TREE.test(sql.text === "" ? name.text : sql.text);
  return isLarge || root.text === "" ? 0 : page.readUIntBE(root.start, root.text.length);
}

/** @returns whether the trees that SQLite reads in whole have at most as many pages as the file */
function areTreesFinite(descriptor: number, pageBytes: number): boolean {
  // A damaged cell can claim to reach beyond its page.
  const page = Buffer.alloc(2 * pageBytes + 200);
  const pages = fstatSync(descriptor).size / pageBytes;
  const unread = [{ number: 1, isSchema: true }];
  for (let visited = 0; visited + unread.length <= pages; visited += 1) {
    const next = unread.pop();
    if (next === undefined) return true;
    const { number, isSchema } = next;
    if (number < 1 || number > pages) continue;
    readSync(descriptor, page, 0, pageBytes, (number - 1) * pageBytes);
    const head = number === 1 ? 100 : 0;
    const type = page.readUInt8(head);
    const isInterior = type === INTERIOR_INDEX || type === INTERIOR_TABLE;
    if (isInterior) unread.push({ number: page.readUInt32BE(head + 8), isSchema });
    else if (!isSchema || type !== LEAF_TABLE) continue;
    const first = head + (isInterior ? 12 : 8);
    const last = Math.min(first + 2 * page.readUInt16BE(head + 3), pageBytes);
    for (let at = first; at < last; at += 2) {
      const cell = page.readUInt16BE(at) % pageBytes;
      const child = isInterior ? page.readUInt32BE(cell) : smallRootOf(page, cell, pageBytes);
      if (child === null) return false;
      if (child > 0) unread.push({ number: child, isSchema: isSchema && isInterior });
    }
  }
  return false;
}

/**
 * Call it before SQLite opens the file in this process, which loses its locks when it closes the file. After a crash,
 * pages can be of different times until SQLite has applied the WAL, so a file with a WAL is not examined.
 * @throws {AppError} operator if SQLite would not end
 */
export function requireFiniteTrees(path: string): void {
  requirePermission([path]);
  if (sizeOf(path) === 0 || !isAtRest(path)) return;
  const header = readHeader(path);
  if (header === null) return;
  const descriptor = openSync(path, "r");
  try {
    // A server that has started meanwhile may be changing the file.
    if (!areTreesFinite(descriptor, header.pageBytes) && isAtRest(path))
      fail("operator", "the file is damaged");
  } finally {
    closeSync(descriptor);
  }
}
