/** The text format of COPY. @see https://www.postgresql.org/docs/current/sql-copy.html#id-1.9.3.55.9.2 */

/** Minimum length of a chunk in characters, except for the last one. */
const CHUNK_LENGTH = 64 * 1024;

export type Cell = string | number | null;

const escapes: Readonly<Record<string, string>> = {
  "\\": "\\\\",
  "\t": "\\t",
  "\n": "\\n",
  "\r": "\\r",
};

function formatCell(cell: Cell): string {
  if (cell === null) return "\\N";
  return typeof cell === "number"
    ? String(cell)
    : cell.replace(/[\\\t\n\r]/g, (character) => escapes[character] ?? character);
}

/** Formats rows as lines, many per chunk. */
export function* formatCopyRows(rows: Iterable<readonly Cell[]>): Generator<string> {
  let chunk = "";
  for (const cells of rows) {
    chunk += `${cells.map(formatCell).join("\t")}\n`;
    if (chunk.length < CHUNK_LENGTH) continue;
    yield chunk;
    chunk = "";
  }
  if (chunk !== "") yield chunk;
}
