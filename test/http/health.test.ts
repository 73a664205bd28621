import { expect, test } from "bun:test";
import { startSharedServer } from "./server.ts";

const server = await startSharedServer();

test.each([
  ["", 200, "ok"],
  ["?primary", 200, "ok"],
  ["?primary=", 200, "ok"],
  ["?live", 200, "live"],
  ["?live=1", 400, "Validation failed: live must be text of at most 0 characters"],
  ["?live&primary", 400, "Validation failed: primary cannot be combined with live"],
  ["?live&live", 400, /^Validation failed: live /],
  ["?standby", 400, "Validation failed: standby is not allowed"],
])("GET /health%s returns %j", async (query, status, text) => {
  const response = await server.call("GET", `/health${query}`, { token: null });
  expect(response.status).toBe(status);
  expect(response.json.data?.status ?? response.json.error).toMatch(text);
});
