import { expect, test } from "bun:test";
import { writeFileSync } from "node:fs";
import { readSecret } from "../../src/base/secret.ts";
import { makeDirectory } from "../support/directory.ts";
import { expectThrown } from "../support/expect-error.ts";

test("readSecret returns the value, or the line of a file, and rejects any other file without repeating it", () => {
  using directory = makeDirectory();
  const path = directory.at("secret");
  for (const end of ["", "\n", "\r\n"]) {
    writeFileSync(path, ` pass: %wörd ${end}`);
    expect(readSecret({ KEY: "", KEY_FILE: path }, "KEY")).toBe(" pass: %wörd ");
  }
  expect(readSecret({ KEY: "value\n", KEY_FILE: "" }, "KEY")).toBe("value\n");
  expect(readSecret({ KEY: "", OTHER_FILE: path }, "KEY")).toBeNull();
  const both = "KEY and KEY_FILE are both set: unset one, or set it to an empty value";
  expectThrown(() => readSecret({ KEY: "hidden", KEY_FILE: path }, "KEY"), "operator", both);
  const expectProblem = (path: string, problem: string) => {
    const message = `Cannot read KEY_FILE "${path}": ${problem}`;
    expectThrown(() => readSecret({ KEY_FILE: path }, "KEY"), "operator", message);
  };
  expectProblem(directory.at("none"), "no such file or directory");
  expectProblem(directory.path, "it is not a regular file");
  for (const text of ["", "\n", "hidden\nhidden", "hidden\n\n", "hidden\0"]) {
    writeFileSync(path, text);
    expectProblem(path, "it must contain one line of text");
  }
  writeFileSync(path, "hidden".repeat(50_000));
  expectProblem(path, "it is too large");
});
