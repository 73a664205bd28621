/** The checksum of a backup: a line behind its last page, which SQLite does not read, and every copy of the file has. */
import { appendFileSync, truncateSync } from "node:fs";
import { hashOf } from "../../base/checksum.ts";
import { fail } from "../../base/error.ts";
import { readHeader, sizeOf } from "../file/files.ts";

const LINE = /^\nuser-api-sha256 (?<hash>[0-9a-f]{64})\n$/;
const LINE_BYTES = 82;

const CHANGED = "it differs from its checksum: it is damaged, or was changed";
export const NO_CHECKSUM = "it has no checksum, so damage may go unnoticed";

export async function appendChecksum(path: string): Promise<void> {
  appendFileSync(path, `\nuser-api-sha256 ${await hashOf(Bun.file(path))}\n`);
}

/** @returns what is wrong; `NO_CHECKSUM` also if a server has used the file since; `null` if backup and checksum agree */
export async function findChange(path: string): Promise<string | null> {
  const file = Bun.file(path);
  const { usesWal = true, end = 0 } = readHeader(path) ?? {};
  if (usesWal || file.size === end) return NO_CHECKSUM;
  const rest = file.size === end + LINE_BYTES ? await file.slice(end).text() : "";
  const { hash } = LINE.exec(rest)?.groups ?? {};
  if (hash === (await hashOf(file.slice(0, end)))) return null;
  return CHANGED;
}

export function removeChecksum(path: string): void {
  truncateSync(path, sizeOf(path) - LINE_BYTES);
}

/** @throws {AppError} operator if more than a checksum follows the last page, which would be copied: it may be terabytes */
export function requireEnd(path: string, { end }: { readonly end: number }): void {
  if (sizeOf(path) > end + LINE_BYTES) fail("operator", CHANGED);
}
