/**
 * What Bun does not do with the sockets of a server, by calls of the system. Only on Linux; elsewhere nothing happens.
 *
 * Connections are bounded by open files, of which each needs one: Bun accepts every connection, and says nothing of it
 * before its first request is complete.
 */
import { dlopen, ptr } from "bun:ffi";
import { closeSync, openSync } from "node:fs";
import { systemCode } from "../error.ts";

type Limit = number | "unlimited";

interface Limits {
  readonly soft: Limit;
  readonly hard: Limit;
}

/** Of `setrlimit`: `RLIMIT_NOFILE` and `RLIM_INFINITY`. */
const OPEN_FILES = 7;
const UNLIMITED = 2n ** 64n - 1n;

/** Levels of socket options: `SOL_SOCKET` and `IPPROTO_TCP`. */
const SOCKET = 1;
const TCP = 6;
/** Options: `SO_REUSEPORT`, `SO_ATTACH_REUSEPORT_CBPF` and `TCP_INFO`. */
const REUSE_PORT = 15;
const SELECTION = 51;
const TCP_INFO = 11;
/** Offsets in `struct tcp_info`, its size up to the last one, and states: `TCP_ESTABLISHED` and `TCP_LISTEN`. */
const STATE = 0;
const LAST_DATA_SENT = 44;
const DATA_SEGMENTS_OUT = 156;
const INFO_BYTES = 160;
const ESTABLISHED = 1;
const LISTENING = 10;
/** Of `shutdown`: `SHUT_RDWR`. */
const BOTH = 2;
/** A program of the packet filter that selects the second socket of a port: `BPF_RET`, and 1 as upper half. */
const SELECT_SECOND = 0x1_0000_0006n;

/** Interval at which open files are counted. */
const INTERVAL_MS = 100;
/** Minimum time between two reports. */
const REPORT_MS = 10_000;
/** Bun closes a connection that has no complete request after this time, so an older one has a request in progress. */
const FIRST_REQUEST_MS = 12_500;

function openLibc() {
  return dlopen("libc.so.6", {
    setrlimit: { args: ["i32", "ptr"], returns: "i32" },
    getsockopt: { args: ["i32", "i32", "i32", "ptr", "ptr"], returns: "i32" },
    setsockopt: { args: ["i32", "i32", "i32", "ptr", "i32"], returns: "i32" },
    shutdown: { args: ["i32", "i32"], returns: "i32" },
  }).symbols;
}

/** @returns the limits of this process. Bun has raised the soft one as far as it may */
function currentLimits(): Limits {
  const { userLimits } = process.report.getReport() as {
    readonly userLimits: Readonly<Record<"open_files", Limits>>;
  };
  return userLimits.open_files;
}

/**
 * Lowers the limit of open files. A service of systemd may not, for example.
 * @returns the limit that applies
 */
export function limitOpenFiles(max: number): number {
  const { soft, hard } = currentLimits();
  if (process.platform === "linux" && (soft === "unlimited" || soft > max)) {
    const limits = [BigInt(max), hard === "unlimited" ? UNLIMITED : BigInt(hard)];
    openLibc().setrlimit(OPEN_FILES, ptr(BigUint64Array.from(limits)));
  }
  const { soft: limit } = currentLimits();
  return limit === "unlimited" ? Number.POSITIVE_INFINITY : limit;
}

type Libc = ReturnType<typeof openLibc>;

/** @returns the state of a TCP socket; `null` if the descriptor is none */
function createInspector({ getsockopt }: Libc): (descriptor: number) => DataView | null {
  const info = new DataView(new ArrayBuffer(INFO_BYTES));
  const size = new Uint32Array([INFO_BYTES]);
  return (descriptor) =>
    getsockopt(descriptor, TCP, TCP_INFO, ptr(info), ptr(size)) === 0 ? info : null;
}

/**
 * Lets a second socket listen on the port of the one that listens now, without a moment in which none does.
 * @returns call it when the second one listens: it then gets all new connections; `null` if the system cannot
 */
export function sharePort(limit: number): (() => void) | null {
  if (process.platform !== "linux") return null;
  const libc = openLibc();
  const inspect = createInspector(libc);
  let first = 0;
  while (first < limit && inspect(first)?.getUint8(STATE) !== LISTENING) first += 1;
  if (libc.setsockopt(first, SOCKET, REUSE_PORT, ptr(Uint32Array.of(1)), 4) !== 0) return null;
  return () => {
    const program = BigUint64Array.of(SELECT_SECOND);
    const filter = BigUint64Array.of(1n, BigInt(ptr(program)));
    libc.setsockopt(first, SOCKET, SELECTION, ptr(filter), filter.byteLength);
  };
}

/** @returns a lower bound of the number of open files: the system assigns the lowest free descriptor */
function countOpenFiles(): number {
  try {
    const descriptor = openSync("/dev/null", "r");
    closeSync(descriptor);
    return descriptor;
  } catch (error) {
    if (systemCode(error) === "EMFILE") return Number.POSITIVE_INFINITY;
    throw error;
  }
}

/**
 * While more than half of the files that may be open are, closes connections on which nothing has been sent, the oldest
 * first: half of those that are more than the requests in progress. So new clients can connect, and files be opened, while
 * others open connections and send no request.
 * @param pendingRequests returns how many requests are in progress
 * @param onClosed called with the number of connections, at most once per `REPORT_MS`
 */
export function closeUnanswered(
  limit: number,
  pendingRequests: () => number,
  onClosed: (count: number) => void,
): Disposable {
  if (process.platform !== "linux") return { [Symbol.dispose]() {} };
  const libc = openLibc();
  const inspect = createInspector(libc);
  let closed = 0;
  let reportedMs = Number.NEGATIVE_INFINITY;

  /** @returns the time since the connection was accepted; `null` if it is none, or something has been sent on it */
  function unansweredMs(descriptor: number): number | null {
    const info = inspect(descriptor);
    if (info?.getUint8(STATE) !== ESTABLISHED) return null;
    if (info.getUint32(DATA_SEGMENTS_OUT, true) > 0) return null;
    return info.getUint32(LAST_DATA_SENT, true);
  }

  function closeOldest(): void {
    const unanswered: { descriptor: number; ms: number }[] = [];
    for (let descriptor = 0; descriptor < limit; descriptor += 1) {
      const ms = unansweredMs(descriptor);
      if (ms !== null && ms < FIRST_REQUEST_MS) unanswered.push({ descriptor, ms });
    }
    unanswered.sort((left, right) => right.ms - left.ms);
    const excess = Math.max(0, unanswered.length - pendingRequests());
    const oldest = unanswered.slice(0, Math.ceil(excess / 2));
    // Bun notices it, and closes the descriptor.
    for (const { descriptor } of oldest) libc.shutdown(descriptor, BOTH);
    closed += oldest.length;
  }

  const timer = setInterval(() => {
    if (countOpenFiles() > limit / 2) closeOldest();
    const timeMs = performance.now();
    if (closed === 0 || timeMs - reportedMs < REPORT_MS) return;
    onClosed(closed);
    closed = 0;
    reportedMs = timeMs;
  }, INTERVAL_MS);
  return { [Symbol.dispose]: () => clearInterval(timer) };
}
