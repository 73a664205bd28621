// Takes the disk away under the running program and gives it back: no write may be acknowledged
// meanwhile, none that was may be lost, and all must go on afterwards without a restart.
import { expect, test } from "bun:test";
import { rmSync, writeFileSync } from "node:fs";
import { makeDirectory, type TemporaryDirectory } from "../directory.ts";
import { newEmail } from "../http/make.ts";
import { against_binary, startServer, type TestServer } from "../http/server.ts";
import { untilHealth } from "./health.ts";
import { inject, obstacle, skip_traced } from "./strace.ts";

function succeeds(...command: string[]): boolean {
  return Bun.spawnSync(command, { stderr: "ignore" }).success;
}

/** A folder on a small disk of its own, in memory. @returns `null` where none can be mounted */
function mountSmallDisk(size: string): TemporaryDirectory | null {
  const directory = makeDirectory();
  if (!succeeds("mount", "-t", "tmpfs", "-o", `size=${size}`, "tmpfs", directory.path)) {
    directory[Symbol.dispose]();
    return null;
  }
  return {
    ...directory,
    [Symbol.dispose]() {
      succeeds("umount", "--lazy", directory.path);
      directory[Symbol.dispose]();
    },
  };
}

interface Outcome {
  readonly emails: Set<string>;
  readonly statuses: Set<number>;
}

/**
 * Creates users one after the other, until this many were refused in a row: a disk that is nearly full has
 * room for some again when the log begins anew.
 */
async function createUntilRefused(server: TestServer, refusals: number): Promise<Outcome> {
  const outcome: Outcome = { emails: new Set(), statuses: new Set() };
  for (let refused = 0; refused < refusals; ) {
    const body = { email: newEmail(), metadata: { note: "n".repeat(500) } };
    const { status, headers, text } = await server.call("POST", "/users", { body });
    outcome.statuses.add(status);
    if (status === 201) {
      outcome.emails.add(body.email);
      refused = 0;
      continue;
    }
    refused += 1;
    expect(headers.get("retry-after")).toBe("1");
    expect(text).toBe(
      '{"data":null,"error":"the database cannot be written at the moment","meta":{"code":"unavailable"}}',
    );
  }
  return outcome;
}

async function expectStored(server: TestServer, emails: ReadonlySet<string>): Promise<void> {
  const { json } = await server.call("GET", "/users?limit=1");
  expect(json.meta.total).toBe(emails.size);
  for (const email of emails) {
    const found = await server.call("GET", `/users?email=${encodeURIComponent(email)}`);
    expect(found.json.meta.total).toBe(1);
  }
}

/** The disk is bad: nothing gets through. Then it is good again. */
async function expectRecovery(server: TestServer, repair: () => void | Promise<void>) {
  const { emails, statuses } = await createUntilRefused(server, 20);
  expect([...statuses].filter((status) => status !== 201)).toEqual([503]);
  await untilHealth(server, 503);
  // What is there can still be read.
  expect((await server.call("GET", "/users?limit=1")).status).toBe(200);
  await repair();
  await untilHealth(server, 200);
  for (let count = 0; count < 5; count += 1) {
    const email = newEmail();
    const { status } = await server.call("POST", "/users", { body: { email } });
    expect(status).toBe(201);
    emails.add(email);
  }
  await expectStored(server, emails);
  await server.stop("SIGKILL");
  await server.restart();
  await expectStored(server, emails);
}

// Larger than the log may become before it is brought into the database, so that this meets the full disk, too.
const small = against_binary ? mountSmallDisk("12m") : null;
if (against_binary && small === null) {
  console.warn("A full disk is not tested: nothing can be mounted here");
}

test.if(small !== null)(
  "Writes return 503 while the disk is full, and succeed afterwards",
  async () => {
    const directory = small ?? makeDirectory();
    writeFileSync(directory.at("filler"), "x".repeat(1_000_000));
    await using server = await startServer({}, directory);
    await expectRecovery(server, () => rmSync(directory.at("filler")));
  },
  120_000,
);

if (against_binary && obstacle !== null) console.warn(`A failing disk is not tested: ${obstacle}`);

test.skipIf(skip_traced).each([
  ["an fsync fails", "fsync,fdatasync", "EIO"],
  ["the disk is read-only", "pwrite64,ftruncate", "EROFS"],
  ["the disk fails", "pwrite64", "EIO"],
])(
  "Writes return 503 while %s, and succeed afterwards",
  async (_what, calls, error) => {
    await using server = await startServer();
    const release = await inject(server.pid ?? 0, { calls, error });
    await expectRecovery(server, async () => {
      await release();
    });
  },
  120_000,
);
