/** The checksum of a backup: a line behind its last page, which SQLite does not read, and every copy of the file has. */
import { appendFileSync, truncateSync } from "node:fs";
import { hashOf } from "../checksum.ts";
import { readHeader, sizeOf } from "./files.ts";

const LINE = /\nuser-api-sha256 (?<hash>[0-9a-f]{64})\n$/;
const LINE_BYTES = 82;

const MISSING = "it has no checksum, so damage may go unnoticed";
const DIFFERENT = "it differs from its checksum: it is damaged, or was changed";

/** What to say about a backup. */
interface Comparison {
  readonly problem: string | null;
  readonly warning: string | null;
}

export async function appendChecksum(path: string): Promise<void> {
  appendFileSync(path, `\nuser-api-sha256 ${await hashOf(Bun.file(path))}\n`);
}

/** Compares a backup with its checksum. A database that a server has used since has none. */
export async function compareChecksum(path: string): Promise<Comparison> {
  const file = Bun.file(path);
  const end = Math.max(0, file.size - LINE_BYTES);
  const { hash } = LINE.exec(await file.slice(end).text())?.groups ?? {};
  if (hash === undefined || readHeader(path)?.usesWal !== false)
    return { problem: null, warning: MISSING };
  const isSame = hash === (await hashOf(file.slice(0, end)));
  return { problem: isSame ? null : DIFFERENT, warning: null };
}

/** Removes the checksum of a backup that has one. */
export function removeChecksum(path: string): void {
  truncateSync(path, sizeOf(path) - LINE_BYTES);
}
