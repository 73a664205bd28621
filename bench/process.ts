/** Processes that are pinned to a core, and what the kernel reports about them. */
import { dlopen } from "bun:ffi";
import { readFileSync } from "node:fs";

/** The measured server, with its database, has one core; the load generator has the other. */
export const SERVER_CORE = 0;
export const LOAD_CORE = 1;

/** The kernel counts CPU time in hundredths of a second (USER_HZ). */
const TICK_US = 10_000;
const START_TIMEOUT_MS = 120_000;

export function pinned(core: number, command: readonly string[]): string[] {
  return ["taskset", "-c", String(core), ...command];
}

/** CPU time of a process, of all its threads and of its children that have ended. */
export function cpuTimeUs(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  // The name before this may contain spaces.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks), 0) * TICK_US;
}

const libc = dlopen("libc.so.6", { clock_gettime: { args: ["i32", "ptr"], returns: "i32" } });

/** CPU time of a process and of all its threads, not of its children: without the rounding of `cpuTimeUs`. */
export function exactTimeUs(pid: number): number {
  const time = new BigInt64Array(2);
  // As clock_getcpuclockid(3) of glibc: all that the scheduler has counted.
  if (libc.symbols.clock_gettime((~pid << 3) | 2, time) !== 0) throw new Error(`${pid} has ended`);
  return Number(time[0]) * 1e6 + Number(time[1]) / 1e3;
}

/** Sum over processes that may end at any time. */
export function sumOfCpuTimeUs(pids: readonly number[]): number {
  let sumUs = 0;
  for (const pid of pids) {
    try {
      sumUs += cpuTimeUs(pid);
    } catch {
      // It has ended: its time counts with its parent.
    }
  }
  return sumUs;
}

/** Time that a core was not idle, including what the host of a virtual machine took. */
export function busyTimeUs(core: number): number {
  const line = new RegExp(`^cpu${core} (.*)$`, "m").exec(readFileSync("/proc/stat", "utf8"));
  const [user = 0, nice = 0, system = 0, , , irq = 0, softirq = 0, steal = 0] =
    line?.[1]?.split(" ").map(Number) ?? [];
  return (user + nice + system + irq + softirq + steal) * TICK_US;
}

/** Resident memory of a process, including mapped files. */
export function residentMemoryMb(pid: number): number {
  const [, kilobytes] = /VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? [];
  return Number(kilobytes) / 1024;
}

export function freePort(): number {
  const listener = Bun.listen({ hostname: "127.0.0.1", port: 0, socket: { data() {} } });
  const { port } = listener;
  listener.stop(true);
  return port;
}

/** Runs a command to its end. @throws {Error} with its standard error if it fails */
export function output(...command: readonly string[]): string {
  const { success, stdout, stderr } = Bun.spawnSync([...command]);
  if (!success) throw new Error(`${command.join(" ")}: ${stderr}`);
  return stdout.toString().trim();
}

export interface Server {
  readonly pid: number;
  readonly url: string;
  /** From the start of the process to its first 200. */
  readonly start_ms: number;
  /** @throws {Error} if the process has ended */
  requireUp(): void;
  stop(): Promise<void>;
}

export interface Start {
  readonly command: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd: string;
  readonly port: number;
  /** Requested until the response is 200. */
  readonly readyPath: string;
  readonly token: string | null;
}

async function isReady(url: string, token: string | null): Promise<boolean> {
  try {
    const headers = token === null ? {} : { authorization: `Bearer ${token}` };
    const response = await fetch(url, { headers, keepalive: false });
    await response.arrayBuffer();
    return response.status === 200;
  } catch {
    return false;
  }
}

/** The log goes to /dev/null: it is written, but no disk or terminal is measured. */
export async function startServer(options: Start): Promise<Server> {
  const url = `http://127.0.0.1:${options.port}`;
  const startedMs = performance.now();
  const child = Bun.spawn(pinned(SERVER_CORE, options.command), {
    cwd: options.cwd,
    env: { PATH: Bun.env["PATH"], NODE_ENV: "production", ...options.env },
    stdout: Bun.file("/dev/null"),
    stderr: "inherit",
  });
  function requireUp(): void {
    const end = child.exitCode ?? child.signalCode;
    if (end !== null) throw new Error(`${options.command.join(" ")} has ended: ${end}`);
  }
  async function stop(): Promise<void> {
    child.kill("SIGTERM");
    await child.exited;
  }
  while (!(await isReady(url + options.readyPath, options.token))) {
    requireUp();
    if (performance.now() - startedMs > START_TIMEOUT_MS) {
      await stop();
      throw new Error(`${options.command.join(" ")} does not respond`);
    }
    await Bun.sleep(1);
  }
  return { pid: child.pid, url, start_ms: performance.now() - startedMs, requireUp, stop };
}
