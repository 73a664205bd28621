/**
 * What Bun does not do with the sockets of a server, by calls of the system. Only on Linux; elsewhere nothing happens.
 *
 * Connections are bounded by open files, of which each needs one: Bun accepts every connection, and says nothing of it
 * before its first request is complete.
 */
import { dlopen } from "bun:ffi";
import { existsSync, readdirSync, statSync } from "node:fs";
import { systemClock } from "../../base/clock.ts";

// Constants of Linux.
const [RLIMIT_NOFILE, SHUT_RDWR] = [7, 2];
const [SOL_SOCKET, SO_REUSEPORT] = [1, 15];
const [IPPROTO_TCP, TCP_INFO] = [6, 11];
const TCP_LISTEN = 10;
/** `struct tcp_info` in words of 32 bits; the state is the lowest byte of the first one. */
const [LAST_DATA_SENT, INFO_WORDS] = [11, 40];

const OPEN_FILES = "/proc/self/fd";
const INTERVAL_MS = 100;
/** Interval of what takes milliseconds: listing thousands of files, or searching them in vain for idle connections. */
const SLOW_INTERVAL_MS = 1000;
const REPORT_MS = 10_000;

function openLibc() {
  if (process.platform !== "linux") return null;
  try {
    return dlopen("libc.so.6", {
      setrlimit: { args: ["i32", "ptr"], returns: "i32" },
      getsockopt: { args: ["i32", "i32", "i32", "ptr", "ptr"], returns: "i32" },
      setsockopt: { args: ["i32", "i32", "i32", "ptr", "i32"], returns: "i32" },
      getsockname: { args: ["i32", "ptr", "ptr"], returns: "i32" },
      getpeername: { args: ["i32", "ptr", "ptr"], returns: "i32" },
      shutdown: { args: ["i32", "i32"], returns: "i32" },
    }).symbols;
  } catch {
    return null;
  }
}

type Libc = NonNullable<ReturnType<typeof openLibc>>;

/** @returns the limit of open files. Bun has raised it as far as it may */
function openFileLimit(): number {
  const { userLimits } = process.report.getReport() as {
    readonly userLimits: Readonly<Record<"open_files", { readonly soft: number | "unlimited" }>>;
  };
  const { soft } = userLimits.open_files;
  return soft === "unlimited" ? Number.POSITIVE_INFINITY : soft;
}

/** A service of systemd may not lower it, for example. @returns the limit that applies */
export function limitOpenFiles(max: number): number {
  if (openFileLimit() > max)
    openLibc()?.setrlimit(RLIMIT_NOFILE, BigUint64Array.of(BigInt(max), BigInt(max)));
  return openFileLimit();
}

/** @returns a function that returns the words of `struct tcp_info`; `null` if the descriptor is no TCP socket */
function createInspector({ getsockopt }: Libc): (descriptor: number) => Uint32Array | null {
  const info = new Uint32Array(INFO_WORDS);
  const size = Uint32Array.of(info.byteLength);
  return (descriptor) =>
    getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, info, size) === 0 ? info : null;
}

/** Lets a second socket listen on the port of the one that listens now. @returns false if the system cannot */
export function sharePort(limit: number): boolean {
  const libc = openLibc();
  if (libc === null) return false;
  const inspect = createInspector(libc);
  let first = 0;
  while (first < limit && ((inspect(first)?.[0] ?? 0) & 255) !== TCP_LISTEN) first += 1;
  return libc.setsockopt(first, SOL_SOCKET, SO_REUSEPORT, Uint32Array.of(1), 4) === 0;
}

/** @param getName `getsockname` or `getpeername`. @returns the port in its address of at most 28 bytes; `null` without one */
function portOf(getName: Libc["getsockname"], descriptor: number): number | null {
  const address = new Uint8Array(28);
  const isNamed = getName(descriptor, address, Uint32Array.of(address.length)) === 0;
  return isNamed ? new DataView(address.buffer).getUint16(2) : null;
}

function countOpenFiles(): number {
  try {
    // Linux before 6.2 does not count them.
    return statSync(OPEN_FILES).size || readdirSync(OPEN_FILES).length;
  } catch {
    // There is none left to read the directory.
    return Number.POSITIVE_INFINITY;
  }
}

/**
 * While more than three quarters of the allowed files are open, closes connections that do not wait for a response, until
 * half are open: first those to which nothing was sent for the longest time, whatever they send. So clients that send no
 * request, or keep many connections, do not keep others from connecting, or the server from opening files.
 * @param port of the server, whose connections are no others than those of its clients; `undefined` on a Unix socket
 * @param onCrowded called when more than half of the allowed files are open, and when it is over
 * @param onClosed called with the number of connections, at most once per `REPORT_MS`
 */
export function closeIdle(
  limit: number,
  port: number | undefined,
  pendingPorts: () => ReadonlySet<number | undefined>,
  onCrowded: (isCrowded: boolean) => void,
  onClosed: (count: number) => void,
): Disposable {
  const libc = openLibc();
  if (libc === null || !existsSync(OPEN_FILES)) return { [Symbol.dispose]() {} };
  const inspect = createInspector(libc);
  let isCrowded = false;
  let closed = 0;
  let reportedMs = Number.NEGATIVE_INFINITY;
  let searchMs = 0;

  function closeLongestIdle({ getsockname, getpeername, shutdown }: Libc, count: number): void {
    const pending = pendingPorts();
    const idle: { descriptor: number; idleMs: number }[] = [];
    for (let descriptor = 0; descriptor < limit; descriptor += 1) {
      const info = inspect(descriptor);
      if (info === null || portOf(getsockname, descriptor) !== port) continue;
      const client = portOf(getpeername, descriptor);
      if (client === null || pending.has(client)) continue;
      idle.push({ descriptor, idleMs: info[LAST_DATA_SENT] ?? 0 });
    }
    idle.sort((left, right) => right.idleMs - left.idleMs).splice(count);
    // Bun notices it, and closes the descriptor.
    for (const { descriptor } of idle) shutdown(descriptor, SHUT_RDWR);
    closed += idle.length;
    if (idle.length === 0) searchMs = performance.now() + SLOW_INTERVAL_MS;
  }

  const intervalMs = statSync(OPEN_FILES).size > 0 ? INTERVAL_MS : SLOW_INTERVAL_MS;
  return systemClock.every(intervalMs, () => {
    const taken = Math.min(countOpenFiles(), limit);
    if (isCrowded !== taken > limit / 2) {
      isCrowded = !isCrowded;
      onCrowded(isCrowded);
    }
    const timeMs = performance.now();
    if (taken > 0.75 * limit && timeMs >= searchMs)
      closeLongestIdle(libc, Math.ceil(taken - limit / 2));
    if (closed === 0 || timeMs - reportedMs < REPORT_MS) return;
    onClosed(closed);
    closed = 0;
    reportedMs = timeMs;
  });
}
