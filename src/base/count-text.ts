export function formatNumber(value: number): string {
  return value.toLocaleString("en");
}

export function formatCount(value: number, noun: string): string {
  return `${formatNumber(value)} ${noun}${value === 1 ? "" : "s"}`;
}

/** @param counts by noun. @returns e.g. `1 user, 2 orders and 3 tokens` */
export function formatCounts(counts: Readonly<Record<string, number>>): string {
  const parts = Object.entries(counts).map(([noun, count]) => formatCount(count, noun));
  return new Intl.ListFormat("en-GB").format(parts);
}
