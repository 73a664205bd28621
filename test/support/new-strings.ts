import { heapStats } from "bun:jsc";

const strings = () => heapStats().objectTypeCounts["string"] ?? 0;

/** @returns about how many strings the work has allocated, also those that are garbage already */
export function countNewStrings(work: () => void): number {
  Bun.gc(true);
  const before = strings();
  work();
  return strings() - before;
}
