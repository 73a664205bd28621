// Bun handles all requests that a connection has pipelined before those of other connections.
import { expect, test } from "bun:test";
import { startSharedServer } from "./server.ts";

const server = await startSharedServer();

/** Rejected without a token, and so in the turn in which they arrive. */
function pipelined(requests: number): string {
  return "GET /api/v1/users HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(requests);
}

function countResponses(received: string): number {
  return received.split("HTTP/1.1 401 ").length - 1;
}

test("the first 64 pipelined requests get a response when they are rejected at once", async () => {
  expect(countResponses(await server.raw(pipelined(64), 1_000))).toBe(64);
});

test("a connection that pipelines thousands of requests gets no more than the first responses", async () => {
  // Responses that the client has not read when the connection is closed can be lost.
  expect(countResponses(await server.raw(pipelined(5_000), 10_000))).toBeLessThan(500);
});

test("requests of many connections at the same time all get a response", async () => {
  const url = `${server.url}/api/v1/users`;
  const responses = await Promise.all(Array.from({ length: 400 }, () => fetch(url)));
  expect(responses.filter(({ status }) => status === 401)).toHaveLength(400);
});

test("requests with a body of more than 1 KiB do not wait for the next turn, until which Bun would keep it", async () => {
  const body = "x".repeat(1025);
  const head = "POST /api/v1/users HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1025\r\n\r\n";
  expect(countResponses(await server.raw((head + body).repeat(150), 1_000))).toBe(150);
});
