/** Processes pinned to a core, and what the kernel tells of them. */
import { readFileSync } from "node:fs";

/** The server has one core for itself, the load generator the other. */
export const SERVER_CORE = 0;
export const LOAD_CORE = 1;

/** `utime` and `stime` are counted in hundredths of a second on every Linux (USER_HZ). */
const TICK_US = 10_000;
const READY_PATIENCE_MS = 120_000;

export function pinned(core: number, command: readonly string[]): string[] {
  return ["taskset", "-c", String(core), ...command];
}

/** CPU time that a process has used, all its threads, in user and kernel mode. */
export function cpuTime_us(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  // The name before it may have spaces.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) * TICK_US;
}

/** Time that a core was not idle, whoever used it, the host of a virtual machine among them. */
export function busyTime_us(core: number): number {
  const line = new RegExp(`^cpu${core} (.*)$`, "m").exec(readFileSync("/proc/stat", "utf8"));
  const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0, steal = 0] =
    line?.[1]?.split(" ").map(Number) ?? [];
  return (user + nice + system + irq + softirq + steal) * TICK_US;
}

/** Memory that a process occupies, mapped files among it. */
export function residentMemory_mb(pid: number): number {
  const [, kilobytes] = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? [];
  return Number(kilobytes) / 1024;
}

/** A port that is free now. */
export function freePort(): number {
  const listener = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
  const { port } = listener;
  listener.stop(true);
  return port;
}

export interface Server {
  readonly pid: number;
  readonly url: string;
  /** From the start of the process to its first 200. */
  readonly start_ms: number;
  /** @throws when it has ended by itself */
  requireUp(): void;
  stop(): Promise<void>;
}

async function answers(url: string, token: string | null): Promise<boolean> {
  try {
    const headers = token === null ? {} : { authorization: `Bearer ${token}` };
    const response = await fetch(url, { headers, keepalive: false });
    await response.arrayBuffer();
    return response.status === 200;
  } catch {
    return false;
  }
}

export interface Start {
  readonly command: readonly string[];
  readonly env: Record<string, string>;
  readonly cwd: string;
  readonly port: number;
  /** Asked until it answers 200. */
  readonly ready_path: string;
  readonly token: string | null;
}

/** Log lines go to /dev/null: written they are, but no disk or terminal is measured. */
export async function startServer(options: Start): Promise<Server> {
  const url = `http://127.0.0.1:${options.port}`;
  const started_ms = performance.now();
  const child = Bun.spawn(pinned(SERVER_CORE, options.command), {
    cwd: options.cwd,
    env: { PATH: Bun.env["PATH"], NODE_ENV: "production", ...options.env },
    stdout: Bun.file("/dev/null"),
    stderr: "inherit",
  });
  const shown = options.command.join(" ");
  function requireUp(): void {
    const end = child.exitCode ?? child.signalCode;
    if (end !== null) throw new Error(`${shown} has ended: ${end}`);
  }
  while (!(await answers(url + options.ready_path, options.token))) {
    requireUp();
    if (performance.now() - started_ms > READY_PATIENCE_MS) {
      child.kill("SIGKILL");
      throw new Error(`${shown} does not answer`);
    }
    await Bun.sleep(1);
  }
  return {
    pid: child.pid,
    url,
    start_ms: performance.now() - started_ms,
    requireUp,
    async stop() {
      child.kill("SIGTERM");
      await child.exited;
    },
  };
}
