// A client that waits for changes on one connection.
import { expect, test } from "bun:test";
import { newUser } from "./make.ts";
import { startServer } from "./server.ts";

test("a wait outlives the idle timeout of a connection", async () => {
  await using server = await startServer();
  await newUser(server);
  const waiting = server.call("GET", "/changes?after=1&wait=60");
  // The idle timeout is 30 s.
  await Bun.sleep(35_000);
  await newUser(server);
  expect((await waiting).json.data).toMatchObject([{ id: 2 }]);
}, 90_000);
