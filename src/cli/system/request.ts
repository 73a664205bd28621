/** Requests of commands to other servers. */

import { formatCount } from "../../base/count-text.ts";
import { AppError, connectionProblem, fail, systemCode } from "../../base/error.ts";
import { exchange } from "../../base/exchange.ts";
import type { CommandSystem } from "./system.ts";

export interface Bounds {
  readonly timeoutMs: number;
  readonly maxBytes: number;
  /** Statuses that another attempt would not change. */
  readonly final: readonly number[];
}

/** The first pause after a failure, and the longest one. Each is twice as long as the one before. */
const [PAUSE_MS, MAX_PAUSE_MS] = [1000, 300_000];
/** Between two messages about one failure. Also the longest pause that a response can ask for. */
const HOUR_MS = 3_600_000;

const LOOPBACK = /^http:\/\/(?:localhost|127(?:\.\d+){3}|\[::1\])[:/]/;
/** Others on the way could read a secret. */
export const SAFE: RegExp = new RegExp(`^https:|${LOOPBACK.source}`);

/** No message repeats the URL, because it can contain a secret. @throws {AppError} usage */
export function readUrl(flag: string, text: string, pattern: RegExp, expected: string): URL {
  const url = URL.parse(text);
  if (url !== null && `${url.username}${url.password}` === "" && pattern.test(url.href)) return url;
  return fail("usage", `Invalid ${flag}: must be https://…${expected}, without a user`);
}

/** @param task follows `Cannot`. @throws {AppError} operator after a final status; else unavailable, caused by a `Retry-After` */
export async function send(
  task: string,
  url: URL,
  init: BunFetchRequestInit,
  { timeoutMs, maxBytes, final }: Bounds,
  { clock }: CommandSystem,
  stop?: AbortSignal,
): Promise<string> {
  const abort = new AbortController();
  const timeout = new AppError("unavailable", `no response in ${timeoutMs / 1000} s`);
  using _timer = clock.every(timeoutMs, () => abort.abort(timeout));
  const signal = AbortSignal.any([abort.signal, stop ?? abort.signal]);
  // What is sent to this machine stays on it, whatever HTTP_PROXY says.
  const direct = LOOPBACK.test(url.href) ? ({ proxy: false } as const) : {};
  const exchanged = exchange(url, { ...init, ...direct, signal }, maxBytes);
  const { response, content } = await exchanged.catch((error) => {
    // The message of an error of `fetch` can have the URL.
    const code = connectionProblem(error) ?? systemCode(error);
    fail("unavailable", `Cannot ${task}: ${error instanceof AppError ? error.message : code}`);
  });
  const text = content.toString();
  const { ok, status, headers } = response;
  if (ok) return text;
  const [, reason = ""] = /"error":"([\w ,.:-]+)/.exec(text) ?? [];
  const message = `Cannot ${task}: status ${status} ${reason}`.trim();
  const cause = headers.get("retry-after");
  throw new AppError(final.includes(status) ? "operator" : "unavailable", message, { cause });
}

/** Pauses that grow while requests fail one after the other, with messages that do not repeat. */
export function createRetries({ clock, stderr }: CommandSystem, stop?: AbortSignal) {
  let [failures, reported, reportedMs, waitedMs] = [0, "", 0, Number.NEGATIVE_INFINITY];
  return {
    end(): void {
      if (failures > 0) stderr(`Continued after ${formatCount(failures, "failure")}\n`);
      [failures, reported] = [0, ""];
    },
    /** @param advice tells one failure from another */
    async pause({ message, cause }: AppError, advice: string): Promise<void> {
      const after = `${cause ?? ""}`;
      const askedMs = Number(after) * 1000 || Date.parse(after) - clock.nowMs() || 0;
      const growingMs = Math.min(PAUSE_MS * 2 ** failures, MAX_PAUSE_MS);
      failures += 1;
      const pauseMs = Math.max(growingMs, Math.min(askedMs, HOUR_MS));
      const nowMs = clock.monotonicMs();
      if (advice !== reported || nowMs - reportedMs >= HOUR_MS) {
        stderr(`${message}; ${advice}\n`);
        [reported, reportedMs] = [advice, nowMs];
      }
      if (pauseMs > MAX_PAUSE_MS && nowMs - waitedMs >= HOUR_MS) {
        const seconds = formatCount(Math.ceil(pauseMs / 1000), "second");
        stderr(`Waiting for ${seconds}, as the server asks\n`);
        waitedMs = nowMs;
      }
      await clock.sleep(pauseMs, stop);
    },
  };
}
