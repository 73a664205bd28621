// Object storage on s3rver, a server of S3 that somebody else has written, run by `make storage-test`. It ignores
// preconditions, and does not verify signatures of version 4.
import { describe, test } from "bun:test";
import { withRetries } from "../../src/domain/object-storage.ts";
import { openStorage } from "../../src/object-storage/open.ts";
import { probe } from "../../src/sqlite/archive/thread/probe.ts";
import { systemMachine } from "../../src/sqlite/disk/system-machine.ts";
import { objectStorageContract } from "../object-storage/contract.ts";
import { makeDirectory } from "../support/directory.ts";
import { expectRejection } from "../support/expect-error.ts";

const isTested = Bun.env["TEST_S3RVER"] === "true";
const timeoutMs = 20_000;

/** @param log to which it writes its port @returns the port */
async function readPort(log: string): Promise<string> {
  for (;;) {
    const [, port] = /listening on [^\n]*:(\d+)\n/.exec(await Bun.file(log).text()) ?? [];
    if (port !== undefined) return port;
    await Bun.sleep(20);
  }
}

async function startS3rver() {
  const directory = makeDirectory();
  const log = directory.at("log");
  const program = `${import.meta.dir}/node_modules/s3rver/bin/s3rver.js`;
  const address = ["-a", "127.0.0.1", "-p", "0"];
  const flags = ["-d", directory.at("data"), ...address, "--configure-bucket", "bucket"];
  const server = Bun.spawn(["node", "--openssl-legacy-provider", program, ...flags], {
    stdout: Bun.file(log),
    stderr: "inherit",
  });
  const environment = {
    S3_ACCESS_KEY_ID: "S3RVER",
    S3_SECRET_ACCESS_KEY: "S3RVER",
    S3_ENDPOINT: `http://127.0.0.1:${await readPort(log)}`,
  };
  const open = (url: string) => {
    const storage = withRetries(openStorage(url, environment, timeoutMs), systemMachine);
    // Of several requests that delete the last objects of a prefix, it may reject one with a 500.
    const remove = (keys: readonly string[], tries = 5): Promise<void> =>
      storage.remove(keys).catch((error) => {
        if (tries === 0) throw error;
        return remove(keys, tries - 1);
      });
    return { ...storage, remove };
  };
  return {
    open,
    storage: open("s3://bucket/prefix"),
    other: open("s3://bucket/prefix"),
    async [Symbol.asyncDispose]() {
      server.kill();
      await server.exited;
      directory[Symbol.dispose]();
    },
  };
}

describe.skipIf(!isTested)("s3rver", () => {
  objectStorageContract(startS3rver, false);

  test("no archive is begun, because two servers could begin it", async () => {
    await using server = await startS3rver();
    const { signal } = new AbortController();
    const more = { machine: systemMachine, signal, log() {} };
    const tried = probe({ ...more, storage: server.storage });
    await expectRejection(tried, "operator", /its conditional writes are not atomic/);
  });
});
