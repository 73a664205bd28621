/**
 * Bounds connections by open files, of which each needs one. Bun accepts every connection, and says nothing of it before its
 * first request is complete, so the operating system is asked. Only Linux can be.
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

/** Of `getsockopt`: `IPPROTO_TCP` and `TCP_INFO`. */
const TCP = 6;
const TCP_INFO = 11;
/** Offsets in `struct tcp_info`, its size up to the last one, and the value of `TCP_ESTABLISHED`. */
const STATE = 0;
const LAST_DATA_SENT = 44;
const DATA_SEGMENTS_OUT = 156;
const INFO_BYTES = 160;
const ESTABLISHED = 1;
/** Of `shutdown`: `SHUT_RDWR`. */
const BOTH = 2;

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
    openLibc().setrlimit(OPEN_FILES, ptr(new BigUint64Array(limits)));
  }
  const { soft: limit } = currentLimits();
  return limit === "unlimited" ? Number.POSITIVE_INFINITY : limit;
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
  const { getsockopt, shutdown } = openLibc();
  const info = new DataView(new ArrayBuffer(INFO_BYTES));
  const size = new Uint32Array([INFO_BYTES]);
  let closed = 0;
  let reportedMs = Number.NEGATIVE_INFINITY;

  /** @returns the time since the connection was accepted; `null` if it is none, or something has been sent on it */
  function unansweredMs(descriptor: number): number | null {
    if (getsockopt(descriptor, TCP, TCP_INFO, ptr(info), ptr(size)) !== 0) return null;
    const isOpen = info.getUint8(STATE) === ESTABLISHED;
    if (!isOpen || info.getUint32(DATA_SEGMENTS_OUT, true) > 0) return null;
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
    for (const { descriptor } of oldest) shutdown(descriptor, BOTH);
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
