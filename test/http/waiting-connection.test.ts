// A client that waits for changes on one connection. `fetch` would send the request again on another one.
import { expect, test } from "bun:test";
import { connect } from "node:net";
import { newUser } from "./make.ts";
import { rawRequest } from "./raw.ts";
import { againstBinary, startServer } from "./server.ts";

test.skipIf(!againstBinary)(
  "a wait outlives the idle timeout of a connection",
  async () => {
    await using server = await startServer();
    await newUser(server);
    let received = "";
    const { promise: ended, resolve } = Promise.withResolvers<void>();
    const token = server.readToken;
    const socket = connect(Number(new URL(server.url).port), "127.0.0.1", () =>
      socket.write(rawRequest("GET", "/api/v1/changes?after=1&wait=60", { token })),
    );
    socket.on("data", (data) => {
      received += data.toString();
    });
    socket.on("close", () => resolve());
    // The idle timeout is 30 s.
    await Bun.sleep(35_000);
    await newUser(server);
    await ended;
    expect(received).toContain('"data":[{"id":2,');
  },
  90_000,
);
