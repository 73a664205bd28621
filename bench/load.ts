/** One run of wrk against one server, and the CPU time that it costs the server. */
import { busyTimeUs, exactTimeUs, LOAD_CORE, pinned, SERVER_CORE } from "./process.ts";
import type { Running } from "./servers.ts";

/** Longer than any response that is measured here. */
const TIMEOUT_S = 60;

/** In `path` and `body`, `{id}` becomes the id of a user, `{new}` a word that no other request has. */
export interface Request {
  readonly method: "GET" | "PATCH" | "POST";
  readonly path: string;
  readonly body?: string;
  /** Whether each request has a new `Idempotency-Key`. */
  readonly keyed?: boolean;
}

const items = [
  { sku: "tea-01", quantity: 2, unit_price: 1999 },
  { sku: "cup-07", name: "Cup, blue", quantity: 1, unit_price: 1250 },
  { sku: "pot-02", quantity: 1, unit_price: 4900 },
];

export const getUser: Request = { method: "GET", path: "/api/v1/users/{id}" };
export const firstPage: Request = { method: "GET", path: "/api/v1/users?limit=20&offset=0" };
export const createUser: Request = {
  method: "POST",
  path: "/api/v1/users",
  body: '{"email":"{new}@example.com","name":"Ann Example"}',
};
export const updateUser: Request = {
  method: "PATCH",
  path: "/api/v1/users/{id}",
  body: '{"name":"Ann {new}"}',
};
export const placeOrder: Request = {
  method: "POST",
  path: "/api/v1/orders",
  body: `{"user_id":{id},"currency":"EUR","items":${JSON.stringify(items)}}`,
  keyed: true,
};

export interface Load {
  readonly request: Request;
  readonly connections: number;
  readonly duration_s: number;
}

export interface Sample {
  readonly requests: number;
  readonly requests_per_s: number;
  readonly p50_ms: number;
  readonly p99_ms: number;
  /** CPU time of the server per request, including that of its database server. */
  readonly cpu_us: number;
  /** Part of its core that wrk used: near 1, wrk is the limit. */
  readonly wrk_load: number;
  /** Part of a core, the server's or wrk's, that other processes used. */
  readonly disturbance: number;
  /** Why the run does not count; `null` if every response was 2xx. */
  readonly fault: string | null;
}

interface Summary {
  readonly requests: number;
  readonly duration_s: number;
  readonly p50_ms: number;
  readonly p99_ms: number;
  readonly rejected: number;
  readonly broken: number;
}

function faultOf({ requests, rejected, broken }: Summary): string | null {
  if (requests === 0) return "no response at all";
  if (rejected > 0) return `${rejected} responses were not 2xx`;
  return broken > 0 ? `${broken} connections broke or timed out` : null;
}

export async function apply(server: Running, load: Load): Promise<Sample> {
  const { method, path, body = "", keyed = false } = load.request;
  server.requireUp();
  const usedUs = () => exactTimeUs(server.pid) + (server.databaseTimeUs?.() ?? 0);
  const proxyBeforeUs = server.proxyTimeUs?.() ?? 0;
  const usedBeforeUs = usedUs();
  const busyBeforeUs = [SERVER_CORE, LOAD_CORE].map(busyTimeUs);
  const wrk = Bun.spawn(
    pinned(LOAD_CORE, [
      ...["wrk", "-t1", `-c${load.connections}`, `-d${load.duration_s}s`],
      ...[`--timeout=${TIMEOUT_S}s`, "-s", `${import.meta.dir}/load.lua`, server.url, "--"],
      // Emails and keys are new in every run.
      ...[method, path, body, String(keyed)],
      ...[server.token, Bun.randomUUIDv7(), String(server.users)],
    ]),
    { stdout: "pipe", stderr: "inherit" },
  );
  const output = await wrk.stdout.text();
  await wrk.exited;
  server.requireUp();
  const serverUs = usedUs() - usedBeforeUs;
  const busyAfterUs = [SERVER_CORE, LOAD_CORE].map(busyTimeUs);
  const line = output.split("\n").findLast((text) => text.startsWith("{"));
  if (line === undefined) throw new Error(`wrk printed: ${output}`);
  const summary: Summary = JSON.parse(line);
  const { requests, duration_s, p50_ms, p99_ms } = summary;
  const wrkUs = Number(wrk.resourceUsage()?.cpuTime.total ?? 0);
  const proxyUs = (server.proxyTimeUs?.() ?? 0) - proxyBeforeUs;
  const othersUs = [serverUs, wrkUs + proxyUs].map(
    (ownUs, core) => (busyAfterUs[core] ?? 0) - (busyBeforeUs[core] ?? 0) - ownUs,
  );
  return {
    requests,
    requests_per_s: requests / duration_s,
    p50_ms,
    p99_ms,
    cpu_us: requests === 0 ? 0 : serverUs / requests,
    wrk_load: wrkUs / 1e6 / duration_s,
    disturbance: Math.max(0, ...othersUs) / 1e6 / duration_s,
    fault: faultOf(summary),
  };
}
