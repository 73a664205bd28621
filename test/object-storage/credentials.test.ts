import { expect, test } from "bun:test";
import { rmSync, writeFileSync } from "node:fs";
import { openCredentials } from "../../src/object-storage/credentials.ts";
import { makeDirectory } from "../support/directory.ts";
import { expectThrown } from "../support/expect-error.ts";

test("keys in files are read again when they are used, and kept while a file cannot be read", () => {
  using directory = makeDirectory();
  const names = ["S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY", "S3_SESSION_TOKEN"] as const;
  const environment = Object.fromEntries(names.map((name) => [`${name}_FILE`, directory.at(name)]));
  const write = (id: string) => {
    for (const name of names) writeFileSync(directory.at(name), `${name}-${id}\n`);
  };
  expectThrown(
    () => openCredentials(environment),
    "operator",
    /^Cannot read S3_ACCESS_KEY_ID_FILE/,
  );
  write("1");
  const credentials = openCredentials(environment);
  const expectKeys = (id: string) => {
    const [accessKeyId, secretAccessKey, sessionToken] = names.map((name) => `${name}-${id}`);
    expect<unknown>(credentials()).toEqual({ accessKeyId, secretAccessKey, sessionToken });
  };
  write("2");
  expectKeys("2");
  writeFileSync(directory.at(names[0]), "half written");
  rmSync(directory.at(names[2]));
  expectKeys("2");
  write("3");
  expectKeys("3");
});
