import { readFileSync } from "node:fs";

/**
 * Watches the peak memory of a process until it is disposed of. Not its resource usage, which includes what this process
 * had when it started the other one.
 * @returns its bytes; 0 where the system has no such file
 */
export function watchPeakMemory(pid: number) {
  let peakBytes = 0;
  const timer = setInterval(() => {
    try {
      const [, kilobytes] =
        /VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? [];
      peakBytes = Math.max(peakBytes, 1024 * Number(kilobytes ?? 0));
    } catch {
      // It has ended.
    }
  }, 10);
  return { bytes: () => peakBytes, [Symbol.dispose]: () => clearInterval(timer) };
}
