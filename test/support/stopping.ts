/** For tests of a clean shutdown: a request in flight, and the moment when the port is closed. */
import net from "node:net";
import { rawRequest } from "../http/raw.ts";
import type { TestServer } from "../http/server.ts";

/** Sends a request except for its last byte. */
export function startRequest(server: Pick<TestServer, "url" | "writeToken">, email: string) {
  const json = JSON.stringify({ email });
  const request = rawRequest("POST", "/api/v1/users", { token: server.writeToken, json });
  const socket = net.connect(Number(new URL(server.url).port), "127.0.0.1");
  let bytes = "";
  socket.on("data", (data) => {
    bytes += data.toString();
  });
  socket.write(request.slice(0, -1));
  const response = new Promise<string>((resolve, reject) => {
    socket.on("close", () => resolve(bytes)).on("error", reject);
  });
  return { response, finish: () => socket.write(request.slice(-1)) };
}

function connects(url: string): Promise<boolean> {
  const { promise, resolve } = Promise.withResolvers<boolean>();
  const socket = net.connect(Number(new URL(url).port), "127.0.0.1", () => resolve(true));
  socket.on("error", () => resolve(false));
  return promise.finally(() => socket.destroy());
}

/** Resolves when the port is closed. Sends no requests: the server waits for a pause between them. */
export async function untilPortClosed({ url }: Pick<TestServer, "url">): Promise<void> {
  while (await connects(url)) await Bun.sleep(2);
}
