import { highestMemory } from "../image/process.ts";

/**
 * Watches the peak memory of a process until it is disposed of. Not its resource usage, which includes what this process
 * had when it started the other one.
 * @returns its bytes; 0 where the system has no such file
 */
export function watchPeakMemory(pid: number) {
  let peakBytes = 0;
  const timer = setInterval(() => {
    try {
      peakBytes = Math.max(peakBytes, highestMemory(pid));
    } catch {
      // It has ended.
    }
  }, 10);
  return { bytes: () => peakBytes, [Symbol.dispose]: () => clearInterval(timer) };
}
