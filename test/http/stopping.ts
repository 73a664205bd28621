/** What a test of a clean stop needs: a request in flight, and the moment the stop has begun. */
import net from "node:net";
import type { TestServer } from "./server.ts";

/** A request of which the last byte is still to be sent. */
export function startRequest(server: Pick<TestServer, "url" | "write_token">, email: string) {
  const body = JSON.stringify({ email });
  const head = [
    "POST /api/v1/users HTTP/1.1",
    "Host: localhost",
    `Authorization: Bearer ${server.write_token}`,
    "Content-Type: application/json",
    `Content-Length: ${body.length}`,
    "Connection: close",
  ];
  const socket = net.connect(Number(new URL(server.url).port), "127.0.0.1");
  let bytes = "";
  socket.on("data", (data) => {
    bytes += data.toString();
  });
  socket.write(`${head.join("\r\n")}\r\n\r\n${body.slice(0, -1)}`);
  const answer = new Promise<string>((resolve, reject) => {
    socket.on("close", () => resolve(bytes)).on("error", reject);
  });
  return { answer, finish: () => socket.write(body.slice(-1)) };
}

/** Resolves when the server takes no new connections: it has understood the signal. */
export async function untilRefusing(server: Pick<TestServer, "call">): Promise<void> {
  while (true) {
    const options = { token: null, headers: { connection: "close" } };
    if ((await server.call("GET", "/health", options).catch(() => null)) === null) return;
  }
}
