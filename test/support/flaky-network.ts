/** A network between one client and a server, which loses, cuts, delays and doubles in a fixed order. */
import { type AddressInfo, createServer, type Socket } from "node:net";
import type { TestServer } from "../http/server.ts";
import { makeRandom } from "./random.ts";

/** Sends a request on a separate connection. @returns the response */
type Deliver = (request: string) => Promise<string>;

/** @returns what the client receives before its connection is closed */
type Fault = (request: string, deliver: Deliver, late: string[]) => Promise<string>;

const headBytes = (response: string) => response.indexOf("\r\n\r\n") + 4;

const faults: Readonly<Record<string, Fault>> = {
  "request is lost": async () => "",
  async "response is lost"(request, deliver) {
    await deliver(request);
    return "";
  },
  async "response is cut in its head"(request, deliver) {
    const response = await deliver(request);
    return response.slice(0, headBytes(response) / 2);
  },
  async "response is cut in its body"(request, deliver) {
    const response = await deliver(request);
    return response.slice(0, (headBytes(response) + response.length) / 2);
  },
  async "request is delivered twice"(request, deliver) {
    await deliver(request);
    return deliver(request);
  },
  async "request is delivered late"(request, _deliver, late) {
    // A GET can wait for changes, and the next request would wait for it.
    if (!request.startsWith("GET")) late.push(request);
    return "";
  },
  "server is busy": async () =>
    "HTTP/1.1 503 Unavailable\r\nRetry-After: 0\r\nContent-Length: 2\r\n\r\n{}",
  // The response of a proxy in front of it.
  "server restarts": async () => "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 6\r\n\r\n<html>",
};

/** All faults, and at most two in a row: clients try six times. */
function orderOf(seed: number): (Fault | null)[] {
  const random = makeRandom(seed);
  const rest = Object.values(faults);
  return Object.keys(faults).flatMap((_, at) => {
    const next = rest.splice(random(rest.length), 1);
    return at % 3 === 0 ? next : [...next, null];
  });
}

function isComplete(request: string): boolean {
  const [, bodyBytes = 0] = /^content-length: *(\d+)/im.exec(request) ?? [];
  return headBytes(request) > 3 && request.length >= headBytes(request) + Number(bodyBytes);
}

/** @param seed decides the order of faults; not 0 */
export async function startFlakyNetwork(server: Pick<TestServer, "raw">, seed: number) {
  const order = orderOf(seed);
  const sockets = new Set<Socket>();
  /** Requests that the server receives after the next one. */
  const late: string[] = [];
  let requests = 0;

  function deliver(request: string): Promise<string> {
    const [line, ...fields] = request.replace(/^connection:.*\r\n/gim, "").split("\r\n");
    const text = [line, "Connection: close", ...fields].join("\r\n");
    return server.raw(Buffer.from(text, "latin1")).catch(() => "");
  }

  async function answer(request: string): Promise<string> {
    const fault = order[requests % order.length] ?? null;
    requests += 1;
    const delayed = late.splice(0);
    const response = await (fault === null ? deliver(request) : fault(request, deliver, late));
    for (const earlier of delayed) await deliver(earlier);
    return response;
  }

  const listener = createServer((socket) => {
    let received = "";
    sockets.add(socket);
    socket.setEncoding("latin1");
    socket.on("error", () => {});
    socket.on("data", async (text) => {
      received += text;
      if (!isComplete(received)) return;
      socket.end(await answer(received), "latin1");
    });
  });
  await new Promise<void>((resolve) => listener.listen(0, "127.0.0.1", resolve));
  const { port: ownPort } = listener.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${ownPort}`,
    /** Whether every fault has happened. */
    isExhausted: () => requests >= order.length,
    async [Symbol.asyncDispose]() {
      listener.close();
      for (const socket of sockets) socket.destroy();
    },
  };
}
