/** The text format of COPY. @see https://www.postgresql.org/docs/current/sql-copy.html#id-1.9.3.55.9.2 */

/** Characters that are sent at once, nearly. */
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

/** Rows as lines, many in one piece of text. */
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
