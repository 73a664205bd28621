/** Object storage, such as S3, in which the archive of a SQLite database is kept. */
import type { Clock } from "../base/clock.ts";
import { AppError, fail } from "../base/error.ts";
import type { Environment } from "../base/secret.ts";

export interface StoredObject {
  readonly key: string;
  readonly bytes: number;
}

export const MAX_OBJECT_BYTES = 32 * 2 ** 20;

/**
 * Keys are below the prefix of the storage, and match {@link isKey}. A body has at most a few MiB, and is held in memory.
 * What a failed call has written can appear at any later time: the request may still be under way. Calls fail with
 * - operator, if they will fail until somebody changes a setting or the storage, e.g. the credentials or the bucket
 * - unavailable, if they may succeed later, e.g. because the storage cannot be reached, is full, or is overloaded
 */
export interface ObjectStorage {
  /** For messages: without credentials. */
  readonly url: string;
  /** @param maxBytes a longer body is truncated, but not before this many bytes. @returns `null` if there is none */
  get(key: string, maxBytes?: number): Promise<Uint8Array<ArrayBuffer> | null>;
  put(key: string, body: Uint8Array<ArrayBuffer>): Promise<void>;
  /** @returns `false` if it exists, perhaps because this call was sent twice: HTTP clients repeat requests */
  create(key: string, body: Uint8Array<ArrayBuffer>): Promise<boolean>;
  /**
   * @param limit if there are more objects, the first ones; a storage that does not sort may have others
   * @param after only objects with greater keys
   * @param pageSize how many are asked for at a time; by default as many as the storage returns
   * @returns the objects whose keys begin with the prefix, sorted by key
   */
  list(prefix: string, limit?: number, after?: string, pageSize?: number): Promise<StoredObject[]>;
  /** Deletes objects. Those that do not exist are ignored. */
  remove(keys: readonly string[]): Promise<void>;
}

/** Small objects that are read at the same time. */
const MAX_READS = 16;

/** Runs work for each item, several at the same time. @returns the results, in the order of the items */
export async function mapBounded<Item, Result>(
  items: readonly Item[],
  work: (item: Item) => Promise<Result>,
  limit = MAX_READS,
): Promise<Result[]> {
  const results: Result[] = [];
  const rest = items.entries();
  const runRest = async () => {
    for (const [at, item] of rest) results[at] = await work(item);
  };
  await Promise.all(Array.from({ length: limit }, runRest));
  return results;
}

/** @param timeoutMs of each request. @throws {AppError} operator if the URL or a variable is invalid */
export type OpenStorage = (
  url: string,
  environment: Environment,
  timeoutMs?: number,
) => ObjectStorage;

/** @returns whether it is words of letters, digits and `. _ - =`, separated by slashes; `.` and `..` are none */
export function isKey(text: string): boolean {
  return text.split("/").every((word) => /^[\w.=-]+$/.test(word) && !/^\.\.?$/.test(word));
}

const FORM = "must be s3://bucket/prefix (letters, digits and . _ - = only) or file:///directory";

/** @throws {AppError} operator, without repeating the URL: it may contain credentials */
export function parseStorageUrl(url: string) {
  const hasForm = /^(s3:\/\/[^@?#]*|file:\/\/[^?#]*)$/.test(url) && !/%(?![\da-f]{2})/i.test(url);
  const parsed = hasForm ? URL.parse(url) : null;
  if (parsed === null) fail("operator", FORM);
  const { protocol, host } = parsed;
  const path = decodeURIComponent(parsed.pathname).replace(/\/+$/, "");
  if (protocol === "file:") {
    if (host !== "" || path === "" || path.includes("\0")) fail("operator", FORM);
    return { kind: "directory" as const, path };
  }
  const prefix = path.slice(1);
  const isBucket = /^[a-z0-9][\w.-]{1,62}$/i.test(host);
  if (!isBucket || (prefix !== "" && !isKey(prefix))) fail("operator", FORM);
  return { kind: "s3" as const, bucket: host, prefix };
}

const [MIN_PAUSE_MS, MAX_PAUSE_MS] = [250, 1_000];
/** One call is not repeated for longer than this. */
const CALL_PATIENCE_MS = 60_000;
/** Nor is any when none has succeeded for so long. */
const STILL_PATIENCE_MS = 10_000;
/** Calls at the same time, as long as none fails. */
const MAX_CALLS = 64;

interface RetryOptions {
  /** Used in the place of {@link STILL_PATIENCE_MS} once a call has succeeded. */
  readonly stillMs?: number;
  /** Called after each attempt. @param error `null` if it has succeeded */
  readonly onResult?: (error: unknown) => void;
}

/**
 * Repeats calls that fail with unavailable, except `remove`, each by itself, until it has not succeeded for a minute, or
 * none has for 10 s; the error then names the key. If the first attempt has created an object although it failed, the next
 * one does not create it. A failure halves the number of calls at the same time, and a success allows one more.
 */
export function withRetries(
  storage: ObjectStorage,
  { monotonicMs, sleep }: Pick<Clock, "monotonicMs" | "sleep">,
  { stillMs = STILL_PATIENCE_MS, onResult = () => {} }: RetryOptions = {},
): ObjectStorage {
  let succeededMs = Number.NEGATIVE_INFINITY;
  let maxCalls = MAX_CALLS;
  let calls = 0;
  let halvedMs = Number.NEGATIVE_INFINITY;
  const waiting: (() => void)[] = [];

  function isLate(startedMs: number): boolean {
    const nowMs = monotonicMs();
    const isNew = succeededMs === Number.NEGATIVE_INFINITY;
    const silentMs = nowMs - Math.max(startedMs, succeededMs);
    if (silentMs >= (isNew ? STILL_PATIENCE_MS : stillMs)) return true;
    return nowMs - startedMs >= Math.max(CALL_PATIENCE_MS, stillMs);
  }

  async function retry<Result>(key: string, call: () => Promise<Result>): Promise<Result> {
    let startedMs = Number.POSITIVE_INFINITY;
    for (let failures = 0; ; failures += 1) {
      while (calls >= maxCalls) await new Promise<void>((resolve) => waiting.push(resolve));
      calls += 1;
      const calledMs = monotonicMs();
      // The wait for the first call does not count.
      startedMs = Math.min(startedMs, calledMs);
      try {
        const result = await call();
        succeededMs = monotonicMs();
        maxCalls = Math.min(MAX_CALLS, maxCalls + 1);
        onResult(null);
        return result;
      } catch (error) {
        // Calls that fail together halve it once.
        if (calledMs > halvedMs) {
          maxCalls = Math.max(1, Math.floor(maxCalls / 2));
          halvedMs = monotonicMs();
        }
        if (!(error instanceof AppError) || error.code !== "unavailable") throw error;
        onResult(error);
        // One may take as long as all of the patience.
        if (failures > 0 && isLate(startedMs)) {
          if (error.message.includes(key)) throw error;
          throw new AppError(error.code, `${error.message} (${key})`, { cause: error.cause });
        }
      } finally {
        calls -= 1;
        for (const resume of waiting.splice(0)) resume();
      }
      await sleep(Math.min(MIN_PAUSE_MS * 2 ** failures, MAX_PAUSE_MS));
    }
  }

  return {
    ...storage,
    get: (key, maxBytes) => retry(key, () => storage.get(key, maxBytes)),
    put: (key, body) => retry(key, () => storage.put(key, body)),
    create: (key, body) => retry(key, () => storage.create(key, body)),
    list: (prefix, ...rest) => retry(`${prefix}*`, () => storage.list(prefix, ...rest)),
  };
}
