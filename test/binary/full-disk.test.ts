// A disk that is full. io-errors-of-requests.test.ts makes each system call fail as if it were.
import { expect, test } from "bun:test";
import { readdirSync, rmSync, statSync, truncateSync } from "node:fs";
import { newEmail } from "../http/make.ts";
import { againstBinary, startServer } from "../http/server.ts";
import { makeDirectory } from "../support/directory.ts";
import { fillDatabase } from "../support/fill.ts";
import { runBinary } from "../support/program.ts";
import { fillDisk, mountDisk } from "./disk.ts";
import { untilHealth } from "./health.ts";

const tiny = againstBinary ? mountDisk(4 * 2 ** 20) : null;
if (againstBinary && tiny === null) {
  console.warn("A full disk is not tested: cannot mount a file system here");
}

test.if(tiny !== null)(
  "commands print one line, and create nothing, when the disk is full",
  async () => {
    using disk = mountDisk(400_000) ?? makeDirectory();
    const path = disk.at("a.db");
    await fillDatabase(path, 3, 2);
    fillDisk(disk.at("filler"));
    for (const [file, ...args] of [
      ["a.db", "token", "create", "a"],
      ["a.db", "check"],
      ["a.db", "serve"],
      ["new.db", "serve"],
    ]) {
      const env = { DATABASE_URL: disk.at(`${file}`), PORT: "0" };
      const { code, stderr } = await runBinary(args, env);
      const line = `Cannot open ${disk.at(`${file}`)}: the disk is full\n`;
      expect([args, code, stderr]).toEqual([args, 1, line]);
    }
    expect(readdirSync(disk.path)).not.toContain("new.db");
  },
);

test.if(tiny !== null)(
  "health returns 503 when the disk has room for a page, but not for a request",
  async () => {
    const directory = tiny ?? makeDirectory();
    const filler = directory.at("filler");
    await using server = await startServer({}, directory);
    const create = () => server.call("POST", "/users", { body: { email: newEmail() } });
    expect((await create()).status).toBe(201);
    fillDisk(filler);
    truncateSync(filler, statSync(filler).size - 2 * 4096);
    const error = "the database cannot be written at the moment";
    expect(await create()).toMatchObject({ status: 503, json: { error } });
    // The first check: no earlier result is reused.
    expect((await server.call("GET", "/health", { token: null })).status).toBe(503);
    rmSync(filler);
    await untilHealth(server, 200);
    expect((await create()).status).toBe(201);
  },
  180_000,
);
