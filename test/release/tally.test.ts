// What `make test` ends with.
import { expect, test } from "bun:test";
import { mkdirSync } from "node:fs";
import { makeDirectory } from "../support/directory.ts";

const failing = `
import { expect, test } from "bun:test";
test("1 < 2 is \\"1\\"", () => expect(1).toBe(2));
test("passes", () => {});
`;

test("the tally ends with the names of failed tests and the numbers when a report has failures", async () => {
  using directory = makeDirectory();
  for (const path of ["dist/test", "test/failover"]) {
    mkdirSync(directory.at(path), { recursive: true });
  }
  await Bun.write(directory.at("test/failover/a.test.ts"), failing);
  const report = "dist/test/failover.xml";
  const options = { cwd: directory.path };
  const reporting = ["--reporter=junit", `--reporter-outfile=${report}`];
  expect(Bun.spawnSync([process.execPath, "test", ...reporting], options).exitCode).toBe(1);

  const script = `${import.meta.dir}/../../scripts/tally.ts`;
  const tally = Bun.spawnSync([process.execPath, script], options);
  expect(tally.exitCode).toBe(1);
  expect(tally.stderr.toString()).toBe(
    'test/failover/a.test.ts:3 1 < 2 is "1": expect(received).toBe(expected) | Expected: 2 | Received: 1\n',
  );
  expect(tally.stdout.toString()).toBe("1 passed, 1 failed\n");
});
