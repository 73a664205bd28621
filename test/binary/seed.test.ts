import { expect, test } from "bun:test";
import { makeDirectory } from "../directory.ts";

const binary = Bun.env["TEST_BINARY"] ?? "";

test.skipIf(binary === "")("`seed` of the binary fills a database, which `check` accepts", () => {
  using directory = makeDirectory();
  const run = (...args: string[]) => {
    const env = { DATABASE_URL: directory.at("demo.db") };
    const { exitCode, stdout, stderr } = Bun.spawnSync([binary, ...args], { env });
    return { code: exitCode, stdout: `${stdout}`, stderr: `${stderr}` };
  };
  const created = { code: 0, stdout: "", stderr: "Created 100 users and 500 orders\n" };
  expect(run("seed")).toEqual(created);
  expect(run("check")).toEqual({ code: 0, stdout: "ok\n", stderr: "" });
});
