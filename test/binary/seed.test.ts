import { expect, test } from "bun:test";
import { makeDirectory } from "../directory.ts";
import { binary, runBinary } from "../program.ts";

test.skipIf(binary === "")("seed of the binary fills a database, which check accepts", async () => {
  using directory = makeDirectory();
  const env = { DATABASE_URL: directory.at("demo.db") };
  const created = { code: 0, stdout: "", stderr: "Created 100 users and 500 orders\n" };
  expect(await runBinary(["seed"], env)).toEqual(created);
  expect(await runBinary(["check"], env)).toEqual({ code: 0, stdout: "ok\n", stderr: "" });
});
