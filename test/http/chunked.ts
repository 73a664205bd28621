/** @returns the body of a response that was sent with chunked transfer coding (RFC 9112 §7.1) */
export function readChunked(response: Buffer): Buffer {
  const chunks: Buffer[] = [];
  for (let at = response.indexOf("\r\n\r\n") + 4; ; ) {
    const end = response.indexOf("\r\n", at);
    const length = Number.parseInt(response.toString("latin1", at, end), 16);
    if (length === 0) return Buffer.concat(chunks);
    chunks.push(response.subarray(end + 2, end + 2 + length));
    at = end + 2 + length + 2;
  }
}
