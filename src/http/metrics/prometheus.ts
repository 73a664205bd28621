/** @see https://prometheus.io/docs/instrumenting/exposition_formats/ */

export const PROMETHEUS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8";

export type Labels = Readonly<Record<string, string | number>>;

interface Sample {
  /** Follows the name of the metric. Only the samples of a histogram have one. */
  readonly suffix?: "_bucket" | "_sum" | "_count";
  readonly labels?: Labels;
  readonly value: number;
}

export interface MetricFamily {
  readonly name: string;
  readonly help: string;
  readonly type: "counter" | "gauge" | "histogram";
  readonly samples: readonly Sample[];
}

function familyText({ name, help, type, samples }: MetricFamily): string {
  const lines = [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`];
  for (const { suffix = "", labels = {}, value } of samples) {
    // No label has a value with a character that would have to be escaped.
    const pairs = Object.entries(labels).map(([label, text]) => `${label}="${text}"`);
    const series = pairs.length === 0 ? "" : `{${pairs.join(",")}}`;
    lines.push(`${name}${suffix}${series} ${value}`);
  }
  return lines.join("\n");
}

export function renderMetrics(families: readonly MetricFamily[]): string {
  return `${families.map(familyText).join("\n\n")}\n`;
}

/** @param upperBounds of the buckets, ascending; one more bucket has no upper bound */
export function createHistogram(upperBounds: readonly number[]) {
  // Not cumulative, so that an observation changes one number.
  const counts = new Array<number>(upperBounds.length + 1).fill(0);
  let sum = 0;
  return {
    observe(value: number): void {
      let bucket = 0;
      while (value > (upperBounds[bucket] ?? Number.POSITIVE_INFINITY)) bucket += 1;
      counts[bucket] = (counts[bucket] ?? 0) + 1;
      sum += value;
    },
    samples(labels: Labels = {}): Sample[] {
      let total = 0;
      const buckets = counts.map((count, index): Sample => {
        total += count;
        const le = upperBounds[index] ?? "+Inf";
        return { suffix: "_bucket", labels: { le, ...labels }, value: total };
      });
      return [
        ...buckets,
        { suffix: "_sum", labels, value: sum },
        { suffix: "_count", labels, value: total },
      ];
    },
  };
}
