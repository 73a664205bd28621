/** One run of wrk against one server, and what it cost the server. */
import type { Running } from "./contenders.ts";
import { memoryLatency_ns } from "./memory.ts";
import { busyTime_us, cpuTime_us, LOAD_CORE, pinned, SERVER_CORE } from "./process.ts";

/** Longer than any answer that is measured here; one that takes longer makes the run invalid. */
const TIMEOUT_S = 60;

/** `user` reads users one by one, in no order; a path is asked again and again. */
export type Mode = "user" | "post-user" | "post-order" | `/${string}`;

export interface Load {
  readonly mode: Mode;
  readonly connections: number;
  readonly duration_s: number;
}

export interface Sample {
  readonly requests: number;
  readonly requests_per_s: number;
  readonly p50_ms: number;
  readonly p99_ms: number;
  /** CPU time of the server for one request, and of its database server if it has one. */
  readonly cpu_us: number;
  /** Part of its core that wrk used: near 1 it is wrk that was measured. */
  readonly wrk_load: number;
  /** Part of a core, the server's or wrk's, that others used: far above 0 the run says little. */
  readonly disturbance: number;
  /** Of one read beyond a core's own caches, just before. */
  readonly memory_ns: number;
  /** What makes this run worthless; `null` when all was answered as it should be. */
  readonly fault: string | null;
}

interface Summary {
  readonly requests: number;
  readonly duration_s: number;
  readonly p50_ms: number;
  readonly p99_ms: number;
  readonly refused: number;
  readonly broken: number;
}

function faultOf({ requests, refused, broken }: Summary): string | null {
  if (requests === 0) return "no answer at all";
  if (refused > 0) return `${refused} answers were refusals`;
  if (broken > 0) return `${broken} connections broke or timed out`;
  return null;
}

export async function apply(server: Running, load: Load): Promise<Sample> {
  // Emails and keys are new in every run.
  const name = Bun.randomUUIDv7();
  server.requireUp();
  const usedSoFar_us = () => cpuTime_us(server.pid) + (server.database_us?.() ?? 0);
  const memory_ns = memoryLatency_ns();
  const before_us = usedSoFar_us();
  const busy_before_us = [SERVER_CORE, LOAD_CORE].map(busyTime_us);
  const wrk = Bun.spawn(
    pinned(LOAD_CORE, [
      ...["wrk", "-t1", `-c${load.connections}`, `-d${load.duration_s}s`],
      ...[`--timeout=${TIMEOUT_S}s`, "-s", `${import.meta.dir}/load.lua`, server.url, "--"],
      ...[load.mode, server.token, name, String(server.users)],
    ]),
    { stdout: "pipe", stderr: "inherit" },
  );
  const output = await wrk.stdout.text();
  await wrk.exited;
  server.requireUp();
  const used_us = usedSoFar_us() - before_us;
  const busy_after_us = [SERVER_CORE, LOAD_CORE].map(busyTime_us);
  const line = output.split("\n").findLast((text) => text.startsWith("{"));
  if (line === undefined) throw new Error(`wrk said: ${output}`);
  const summary = JSON.parse(line) as Summary;
  const { requests, duration_s, p50_ms, p99_ms } = summary;
  const wrk_us = Number(wrk.resourceUsage()?.cpuTime.total ?? 0);
  const others_us = [used_us, wrk_us].map(
    (own_us, core) => (busy_after_us[core] ?? 0) - (busy_before_us[core] ?? 0) - own_us,
  );
  return {
    requests,
    requests_per_s: requests / duration_s,
    p50_ms,
    p99_ms,
    cpu_us: requests === 0 ? 0 : used_us / requests,
    wrk_load: wrk_us / 1e6 / duration_s,
    disturbance: Math.max(0, ...others_us) / 1e6 / duration_s,
    memory_ns,
    fault: faultOf(summary),
  };
}
