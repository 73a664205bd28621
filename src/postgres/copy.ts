/** The text format of COPY. @see https://www.postgresql.org/docs/current/sql-copy.html#id-1.9.3.55.9.2 */

export type Cell = string | number | null;

const escapes: Readonly<Record<string, string>> = {
  "\\": "\\\\",
  "\t": "\\t",
  "\n": "\\n",
  "\r": "\\r",
};

function cellText(cell: Cell): string {
  if (cell === null) return "\\N";
  return typeof cell === "number"
    ? String(cell)
    : cell.replace(/[\\\t\n\r]/g, (character) => escapes[character] ?? character);
}

/** One row, with the end of its line. */
export function copyLine(cells: readonly Cell[]): string {
  return `${cells.map(cellText).join("\t")}\n`;
}
