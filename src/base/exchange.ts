/** A request with bounds, and no redirects, which would get secrets. @param maxBytes cuts the body; 0 does not wait for it */
export async function exchange(url: URL, init: BunFetchRequestInit, maxBytes: number) {
  // A compressed response would have another length, and Bun prints a line for each that it cannot decompress.
  const headers = { ...init.headers, "accept-encoding": "identity" };
  const raw = { redirect: "manual", decompress: false } as const;
  const response = await fetch(url, { ...init, headers, ...raw });
  if (maxBytes === 0) await response.body?.cancel();
  const parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const part of response.body ?? []) {
    parts.push(part);
    bytes += part.length;
    if (bytes > maxBytes) break;
  }
  return { response, content: Buffer.concat(parts) };
}
