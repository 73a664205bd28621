/** results.svg: bars of the requests per second. Panels are in two columns. */
import { type Results, tableOf } from "./goals.ts";
import { loadsOf } from "./pocketbase.ts";
import { loads, nearTitle } from "./postgres.ts";
import { medianOf } from "./rounds.ts";
import { createTitle, ordersTitle, ours, readsTitle, sizesTitle } from "./sqlite.ts";

const WIDTH = 960;
const MARGIN = 24;
const COLUMN = 468;
/** Wide enough for the longest label. */
const LABELS = 178;
const BARS = 190;
const ROW = 20;
const title = "Requests per second, each server on one core";

/** Each color in a light and in a dark page. */
const colors = {
  paper: ["#ffffff", "#0d1117"],
  ink: ["#1f2328", "#e6edf3"],
  quiet: ["#59636e", "#9198a1"],
  ours: ["#0969da", "#4493f8"],
  other: ["#afb8c1", "#6e7681"],
} as const;

function style(): string {
  const rules = (shade: 0 | 1) =>
    Object.entries(colors)
      .map(([name, shades]) => `.${name}{fill:${shades[shade]}}`)
      .join("");
  // Outlines have no fill.
  const outline = (shade: 0 | 1) => `.normal{fill:none;stroke:${colors.other[shade]}}`;
  const dark = `@media (prefers-color-scheme:dark){${rules(1)}${outline(1)}}`;
  const font = "font:12px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif";
  return `<style>text{${font}}.bold{font-weight:bold}${rules(0)}${outline(0)}${dark}</style>`;
}

interface Text {
  readonly x: number;
  readonly y: number;
  readonly text: string;
  readonly anchor?: "start" | "end";
  readonly name?: string;
  readonly size?: number;
}

function draw({ x, y, text, anchor = "start", name = "ink", size = 12 }: Text): string {
  const escaped = text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
  return `<text x="${x}" y="${y}" text-anchor="${anchor}" class="${name}" style="font-size:${size}px">${escaped}</text>`;
}

interface Bar {
  readonly name: string;
  readonly value: number;
}

interface Panel {
  readonly title: string;
  readonly bars: readonly Bar[];
}

/** Bars of the rows of a table. They are sorted, except those of a growing table. */
function panelOf(results: Results, title: string, tableTitle: string): Panel {
  const table = tableOf(results, tableTitle);
  const bars = (table?.rows ?? []).map(({ name }) => ({
    name,
    value: medianOf(table, name, "requests_per_s"),
  }));
  if (tableTitle !== sizesTitle) bars.sort((left, right) => right.value - left.value);
  return { title, bars };
}

function drawBar({ name, value }: Bar, longest: number, x: number, y: number): string {
  const width = Math.max(1, (BARS * value) / longest).toFixed(1);
  const fill = name.startsWith(ours) ? "ours" : "other";
  const kind = name.endsWith("NORMAL")
    ? 'class="normal" stroke-dasharray="4 3"'
    : `class="${fill}"`;
  const shown = value < 10 ? value.toFixed(1) : Math.round(value).toLocaleString("en");
  return [
    draw({ x: x + LABELS - 8, y: y + 14, text: name.replace(", FULL", ""), anchor: "end" }),
    `<rect x="${x + LABELS}" y="${y + 4}" width="${width}" height="${ROW - 7}" ${kind}/>`,
    draw({ x: x + LABELS + Number(width) + 6, y: y + 14, text: shown }),
  ].join("");
}

function drawPanel({ title, bars }: Panel, x: number, y: number): string {
  const longest = Math.max(...bars.map(({ value }) => value));
  const rows = bars.map((bar, index) => drawBar(bar, longest, x, y + 22 + index * ROW));
  return draw({ x, y: y + 14, text: title, name: "ink bold", size: 14 }) + rows.join("\n");
}

export function plot(results: Results): string {
  const { get, list, deep, create } = loadsOf(results.pocketbase_users);
  const panels = [
    ["Read a user, 64 clients", readsTitle],
    ["Create a user, 64 clients", createTitle],
    ["Place an order of 3 items, 64 clients", ordersTitle],
    ["A page of 20 as the table grows, 8 clients", sizesTitle],
    ["PocketBase: read a record, 64 clients", get.title],
    ["PocketBase: create a record, 64 clients", create.title],
    ["PocketBase: the first page of 20, 8 clients", list.title],
    ["PocketBase: a deep page of 20, 8 clients", deep.title],
    ["PostgreSQL: read a user, 64 clients", nearTitle(loads.get)],
    ["PostgreSQL: a page of 20, 8 clients", nearTitle(loads.list)],
    ["PostgreSQL: create a user, 64 clients", nearTitle(loads.create)],
    ["PostgreSQL: place an order, 64 clients", nearTitle(loads.order)],
  ].map(([title = "", table = ""]) => panelOf(results, title, table));
  const drawn: string[] = [];
  let y = 76;
  for (let row = 0; row < panels.length; row += 2) {
    const pair = panels.slice(row, row + 2);
    for (const [side, panel] of pair.entries()) {
      drawn.push(drawPanel(panel, MARGIN + side * COLUMN, y));
    }
    y += 40 + ROW * Math.max(...pair.map(({ bars }) => bars.length));
  }
  const note =
    "Solid: every acknowledged write is on disk. Dashed (NORMAL): a power cut may lose it.";
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${WIDTH}" height="${y}" viewBox="0 0 ${WIDTH} ${y}">
<title>${title}</title>
${style()}
<rect width="${WIDTH}" height="${y}" class="paper"/>
${draw({ x: MARGIN, y: 32, text: title, name: "ink bold", size: 18 })}
${draw({ x: MARGIN, y: 54, text: note, name: "quiet", size: 13 })}
${drawn.join("\n")}
</svg>
`;
}
