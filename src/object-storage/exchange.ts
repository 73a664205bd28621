/** @param maxBytes a longer body is cut. @throws the error of `fetch`, which `describeFailure` explains */
export async function exchange(
  url: URL,
  init: BunFetchRequestInit,
  timeoutMs: number,
  maxBytes: number,
) {
  const signal = AbortSignal.timeout(timeoutMs);
  // A compressed response would have another length, and Bun prints a line for each that it cannot decompress.
  const headers = { ...init.headers, "accept-encoding": "identity" };
  const raw = { redirect: "manual", decompress: false, signal } as const;
  const response = await fetch(url, { ...init, headers, ...raw });
  const parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const part of response.body ?? []) {
    parts.push(part);
    bytes += part.length;
    if (bytes > maxBytes) break;
  }
  return { response, content: Buffer.concat(parts) };
}
