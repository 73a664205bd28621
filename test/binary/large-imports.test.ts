// The memory of import and export, which test/cli cannot test.
import { expect } from "bun:test";
import { makeDirectory } from "../support/directory.ts";
import { isLong } from "../support/long.ts";
import { watchPeakMemory } from "../support/peak-memory.ts";
import { binary, startProgram } from "../support/program.ts";
import { test } from "./on-binary.ts";

/** 27 kB each, 135 MB as text. */
const WIDE_USERS = 5000;
/** The process needs 85 MB without any records. */
const MAX_BYTES = 250 * 2 ** 20;

test("import and export need no more memory when the records are large and many", async () => {
  using directory = makeDirectory();
  const key = (at: number) => `${at}`.padStart(40, "k");
  const metadata = JSON.stringify(
    Object.fromEntries(Array.from({ length: 50 }, (_, at) => [key(at), "x".repeat(500)])),
  );
  const lines = Array.from(
    { length: WIDE_USERS },
    (_, at) => `{"email":"${at}@b.cd","metadata":${metadata}}\n`,
  );
  await Bun.write(directory.at("a.ndjson"), lines);
  const commands = [
    "import users a.ndjson",
    "export users --output b.csv",
    ...(isLong ? ["export users --output b"] : []),
  ];
  const options = { env: { DATABASE_URL: directory.at("a.db") }, cwd: directory.path };
  for (const command of commands) {
    const child = startProgram([binary, ...command.split(" ")], options);
    using memory = watchPeakMemory(child.pid);
    expect((await child.ended).code, command).toEqual(0);
    expect(memory.bytes()).toBeGreaterThan(0);
    expect(memory.bytes()).toBeLessThan(MAX_BYTES);
  }
});
