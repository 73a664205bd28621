// Bun holds the header of a request until it is complete, also that of a client without a token.
import { expect, test } from "bun:test";
import { sendRaw } from "../http/raw.ts";
import { againstBinary, startServer } from "../http/server.ts";

test.skipIf(!againstBinary)("a request returns 431 when its headers exceed 8 KiB", async () => {
  await using server = await startServer();
  const statusWith = async (length: number) => {
    const headers = [`X-Long: ${"a".repeat(length)}`];
    return (await sendRaw(server, "GET", "/api/v1/users", { headers })).status;
  };
  expect(await statusWith(7_900)).toBe(401);
  expect(await statusWith(8_192)).toBe(431);
});
