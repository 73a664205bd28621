/** results.svg: who answers how many requests a second, and what happens as tables grow. */
import { BarChart, LineChart } from "echarts/charts";
import { GridComponent, TitleComponent } from "echarts/components";
import { init, use } from "echarts/core";
import { SVGRenderer } from "echarts/renderers";
import { groupOf, type Results } from "./goals.ts";
import { sizeName, sizes_title } from "./lists.ts";
import { ours, reads_title } from "./reads.ts";
import { type Group, median, rowOf } from "./rounds.ts";
import { titleOf } from "./writes.ts";

use([BarChart, LineChart, GridComponent, TitleComponent, SVGRenderer]);

const WIDTH = 960;
const HEIGHT = 640;
const title = "Requests a second, each server on one core";

/** Light, and what each becomes in the dark. */
const colours = {
  paper: ["#ffffff", "#0d1117"],
  ink: ["#1f2328", "#e6edf3"],
  quiet: ["#59636e", "#9198a1"],
  line: ["#d1d9e0", "#3d444d"],
  ours: ["#0969da", "#4493f8"],
  other: ["#afb8c1", "#6e7681"],
} as const;
type Colour = keyof typeof colours;
const light = (name: Colour) => colours[name][0];

const font = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";

/** A presentation attribute yields to any style rule, so the dark needs rules only. */
function darkStyle(): string {
  const rules = Object.values(colours).map(
    ([day, night]) => `[fill="${day}"]{fill:${night}}[stroke="${day}"]{stroke:${night}}`,
  );
  return `<style>@media (prefers-color-scheme:dark){${rules.join("")}}</style>`;
}

interface Panel {
  readonly title: string;
  readonly left: number;
  readonly top: number;
  readonly height: number;
}

const LABELS = 150;
const PANEL_WIDTH = 440;

function rate(group: Group, name: string): number {
  return median(rowOf(group, name).map((sample) => sample.requests_per_s));
}

function barStyle(name: string) {
  if (name.startsWith(ours)) return { color: light("ours") };
  if (!name.endsWith("NORMAL")) return { color: light("other") };
  // Hollow, as its promise is.
  return {
    color: light("paper"),
    borderColor: light("other"),
    borderWidth: 1.5,
    borderType: [4, 3],
  };
}

function nameOf(row: string): string {
  return row.replace(", FULL", "").replace("raw Bun.serve", "raw, the ceiling");
}

const compact = new Intl.NumberFormat("en", { notation: "compact" });

/** Bars of one group, the longest first. */
function bars(index: number, group: Group, panel: Panel) {
  const rows = group.rows
    .map(({ name }) => ({ name, value: rate(group, name) }))
    .sort((left, right) => left.value - right.value);
  return {
    grid: {
      left: panel.left + LABELS,
      top: panel.top + 26,
      width: PANEL_WIDTH - LABELS - 60,
      height: panel.height - 26,
    },
    xAxis: { gridIndex: index, type: "value" as const, show: false },
    yAxis: {
      gridIndex: index,
      type: "category" as const,
      data: rows.map(({ name }) => name),
      axisLine: { show: false },
      axisTick: { show: false },
      axisLabel: { color: light("ink"), fontFamily: font, fontSize: 12, formatter: nameOf },
    },
    series: {
      type: "bar" as const,
      xAxisIndex: index,
      yAxisIndex: index,
      barWidth: "62%",
      data: rows.map(({ name, value }) => ({ value, itemStyle: barStyle(name) })),
      label: {
        show: true,
        position: "right" as const,
        color: light("ink"),
        fontFamily: font,
        fontSize: 12,
        formatter: ({ value }: { value?: unknown }) =>
          Math.round(Number(value)).toLocaleString("en"),
      },
    },
  };
}

/** Both axes logarithmic: a flat line is what a constant price looks like. */
function lines(index: number, group: Group, sizes: readonly number[], panel: Panel) {
  const label = { color: light("quiet"), fontFamily: font, fontSize: 12 };
  const series = (server: "user-api" | "plain SQL", colour: Colour) => ({
    type: "line" as const,
    xAxisIndex: index,
    yAxisIndex: index,
    data: sizes.map((rows) => [rows, rate(group, sizeName(server, rows))]),
    symbol: "circle",
    symbolSize: 7,
    itemStyle: { color: light(colour) },
    lineStyle: { color: light(colour), width: 2.5 },
    endLabel: {
      show: true,
      color: light("ink"),
      fontFamily: font,
      fontSize: 12,
      formatter: server,
    },
    labelLayout: { moveOverlap: "shiftY" as const },
  });
  return {
    grid: {
      left: panel.left + 60,
      top: panel.top + 44,
      width: PANEL_WIDTH - 60 - 80,
      height: panel.height - 74,
    },
    xAxis: {
      gridIndex: index,
      type: "log" as const,
      axisLabel: { ...label, formatter: (rows: number) => `${compact.format(rows)} rows` },
      axisLine: { lineStyle: { color: light("line") } },
      axisTick: { show: false },
      splitLine: { show: false },
    },
    yAxis: {
      gridIndex: index,
      type: "log" as const,
      min: 1,
      axisLabel: { ...label, formatter: (value: number) => value.toLocaleString("en") },
      axisLine: { show: false },
      axisTick: { show: false },
      splitLine: { lineStyle: { color: light("line") } },
    },
    series: [series("plain SQL", "other"), series("user-api", "ours")],
  };
}

export function plot(results: Results): string {
  const panels: Panel[] = [
    { title: "Read a user, 64 clients", left: 24, top: 84, height: 250 },
    { title: "Create a user, 64 clients", left: 496, top: 84, height: 250 },
    { title: "Place an order of 3 items, 64 clients", left: 24, top: 372, height: 230 },
    { title: "A page of 20 as the table grows", left: 496, top: 372, height: 250 },
  ];
  const [reads, users, orders, pages] = panels as [Panel, Panel, Panel, Panel];
  const barred = [
    bars(0, groupOf(results, reads_title), reads),
    bars(1, groupOf(results, titleOf("post-user", 64)), users),
    bars(2, groupOf(results, titleOf("post-order", 64)), orders),
  ];
  const lined = lines(3, groupOf(results, sizes_title), results.sizes, pages);
  const parts = [...barred, lined];
  const text = (size: number, weight: "normal" | "bold", colour: Colour) => ({
    fontFamily: font,
    fontSize: size,
    fontWeight: weight,
    color: light(colour),
  });
  const chart = init(null, null, { renderer: "svg", ssr: true, width: WIDTH, height: HEIGHT });
  chart.setOption({
    animation: false,
    backgroundColor: light("paper"),
    title: [
      {
        text: title,
        subtext:
          "Solid: what is answered is on disk. Dashed (NORMAL): it can be lost at a power cut.",
        left: 24,
        top: 14,
        padding: 0,
        itemGap: 8,
        textStyle: text(18, "bold", "ink"),
        subtextStyle: text(13, "normal", "quiet"),
      },
      ...panels.map(({ title, left, top }) => ({
        text: title,
        left,
        top,
        padding: 0,
        textStyle: text(14, "bold", "ink"),
      })),
    ],
    grid: parts.map(({ grid }) => grid),
    xAxis: parts.map(({ xAxis }) => xAxis),
    yAxis: parts.map(({ yAxis }) => yAxis),
    series: [...barred.flatMap(({ series }) => series), ...lined.series],
  });
  const svg = chart.renderToSVGString();
  chart.dispose();
  // Not every viewer knows `dominant-baseline`; all know `dy`.
  const centred = svg.replaceAll('dominant-baseline="central"', 'dy="0.35em"');
  return centred.replace(">", `><title>${title}</title>${darkStyle()}`);
}
