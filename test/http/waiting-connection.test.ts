// A client that waits for changes on one connection. `fetch` would send the request again on another one.
import { expect, test } from "bun:test";
import { text } from "node:stream/consumers";
import { isLong } from "../support/long.ts";
import { newUser } from "./make.ts";
import { rawRequest, sendOnly } from "./raw.ts";
import { againstBinary, startServer } from "./server.ts";

test.if(againstBinary && isLong)(
  "a wait outlives the idle timeout of a connection",
  async () => {
    await using server = await startServer();
    await newUser(server);
    const target = "/api/v1/changes?after=1&wait=60";
    const request = rawRequest("GET", target, { token: server.readToken });
    const socket = await sendOnly(server, request);
    // The idle timeout is 30 s.
    await Bun.sleep(35_000);
    await newUser(server);
    expect(await text(socket)).toContain('"data":[{"id":2,');
  },
  180_000,
);
