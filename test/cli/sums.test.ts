import { expect, test } from "bun:test";
import { fillDatabase } from "../support/fill.ts";
import { makeHarness } from "./harness.ts";

test("sums prints the sums of a period as CSV, while a server runs and without one", async () => {
  using world = makeHarness();
  await fillDatabase(world.path, 2, 3);
  const period = "--from 2025-12-31T12:00:00.0001-08:00 --to 2026-02-01T00:00:00Z";
  const flags = `${period} --interval month --time-zone America/Los_Angeles`.split(" ");
  const run = () => world.run("sums", ...flags);
  const stdout = [
    "from,to,currency,status,orders,total,refunded\n",
    '"2025-12-31T20:00:00.001Z","2026-01-01T08:00:00.000Z","EUR","pending",3,7500,0\n',
  ].join("");
  expect(await run()).toEqual({ code: 0, stdout, stderr: "" });
  const server = await world.serve();
  expect(await run()).toEqual({ code: 0, stdout, stderr: "" });
  await server.stop();
});

const from = "--from 2026-01-01T00:00:00Z";
const year = `${from} --to 2027-01-01T00:00:00Z`;

test.each([
  ["--to 2026-02-01T00:00:00Z", "Required option '--from <time>' not specified"],
  ["--from 2026-01-01 --to 2026-02-01T00:00:00Z", "Invalid --from"],
  [`${from} --to 2026-01-01T00:00:00Z`, "--from must be before --to"],
  [`${from} --to 2027-01-02T00:00:00.001Z`, "--to must be earlier: at most 366 intervals by day"],
  [`${year} --time-zone +01:00`, "--time-zone must be a name of the IANA list"],
  [`${year} --interval week`, "argument 'week' is invalid"],
])("sums fails when its flags are %s", async (flags, problem) => {
  using world = makeHarness();
  await fillDatabase(world.path, 1);
  const { code, stdout, stderr } = await world.run("sums", ...flags.split(" "));
  expect([code, stdout, stderr]).toEqual([2, "", expect.stringContaining(problem)]);
});
