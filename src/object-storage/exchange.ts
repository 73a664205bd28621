/** One request with its response, both of which are bounded in time and size. */

export interface Bounds {
  readonly timeoutMs: number;
  /** A longer body is cut. */
  readonly maxBytes: number;
}

/** @throws the error of `fetch`, which `describeFailure` explains */
export async function exchange(
  url: URL,
  init: BunFetchRequestInit,
  { timeoutMs, maxBytes }: Bounds,
) {
  const signal = AbortSignal.timeout(timeoutMs);
  const response = await fetch(url, { ...init, redirect: "manual", signal });
  const parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const part of response.body ?? []) {
    parts.push(part);
    bytes += part.length;
    if (bytes > maxBytes) break;
  }
  return { response, content: Buffer.concat(parts) };
}
