/** Requests and responses as text, for what `fetch` does not send or does not show. */
import { connect, type Socket } from "node:net";
import type { TestServer } from "./server.ts";

export interface RawRequest {
  /** Values of `Host`, a line each. Default: `localhost`. */
  readonly hosts?: readonly string[];
  readonly token?: string | null;
  readonly headers?: readonly string[];
  /** Sent after `Content-Type` and `Content-Length`. */
  readonly json?: string;
  /** Whether the connection stays open after the response. */
  readonly keepAlive?: boolean;
}

/** @param target the path from its root, and the query */
export function rawRequest(method: string, target: string, request: RawRequest = {}): string {
  const { hosts = ["localhost"], token = null, headers = [], json, keepAlive = false } = request;
  const lines = [`${method} ${target} HTTP/1.1`, ...hosts.map((host) => `Host: ${host}`)];
  if (token !== null) lines.push(`Authorization: Bearer ${token}`);
  if (!keepAlive) lines.push("Connection: close");
  if (json !== undefined) {
    lines.push("Content-Type: application/json", `Content-Length: ${Buffer.byteLength(json)}`);
  }
  return [...lines, ...headers, "", json ?? ""].join("\r\n");
}

/** Sends a request without changes by `fetch`. */
export async function sendRaw(
  server: Pick<TestServer, "raw">,
  method: string,
  target: string,
  request: RawRequest = {},
) {
  const bytes = await server.raw(rawRequest(method, target, request));
  const end = bytes.indexOf("\r\n\r\n");
  const head = bytes.slice(0, end);
  const [first = "", ...lines] = head.split("\r\n");
  const headers = new Headers();
  for (const line of lines) {
    const colon = line.indexOf(":");
    headers.append(line.slice(0, colon), line.slice(colon + 1).trim());
  }
  return {
    status: Number(first.split(" ")[1]),
    headers,
    text: bytes.slice(end + "\r\n\r\n".length),
    head,
  };
}

/** Sends bytes on a separate connection, and reads nothing of the response. */
export function sendOnly({ url }: Pick<TestServer, "url">, bytes: string): Promise<Socket> {
  const { promise, resolve, reject } = Promise.withResolvers<Socket>();
  const socket = connect(Number(new URL(url).port), "127.0.0.1", () => {
    socket.pause();
    socket.write(bytes);
    resolve(socket);
  });
  socket.on("error", reject);
  return promise;
}

/** Sends bytes on each of many connections, and reads nothing. @returns closes them */
export async function openMany(
  server: Pick<TestServer, "url">,
  bytes: string,
  count: number,
): Promise<Disposable> {
  const opened = Array.from({ length: count }, () => sendOnly(server, bytes));
  const sockets = await Promise.all(opened);
  return {
    [Symbol.dispose]() {
      for (const socket of sockets) socket.destroy();
    },
  };
}

/** @returns a body with chunked transfer coding (RFC 9112 §7.1), complete unless `last` is omitted */
export function chunked(chunks: readonly string[], last = true): string {
  const all = last ? [...chunks, ""] : chunks;
  return all.map((chunk) => `${Buffer.byteLength(chunk).toString(16)}\r\n${chunk}\r\n`).join("");
}
