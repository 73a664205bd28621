// A process that has used up its open files cannot start a thread any more, and Bun ends it when it tries.
import { expect, test } from "bun:test";
import { existsSync, readdirSync, statSync } from "node:fs";
import { connect } from "node:net";
import { CHECKPOINT_PAGES } from "../../src/sqlite/connection.ts";
import { newToken } from "../../src/token.ts";
import { makeDirectory } from "../directory.ts";
import { newEmail } from "../http/make.ts";
import { againstBinary, sendCall } from "../http/server.ts";
import { binary, startProgram } from "../program.ts";
import { largeMetadata } from "./disk.ts";

const OPEN_FILES = 96;

test.if(againstBinary && existsSync("/proc/self/fd"))(
  "serve survives a checkpoint when clients use up its open files",
  async () => {
    using directory = makeDirectory();
    const token = newToken();
    const database = directory.at("a.db");
    const env = {
      DATABASE_URL: database,
      PORT: "0",
      API_TOKEN: token,
      PATH: Bun.env["PATH"] ?? "",
    };
    const limited = `ulimit -n ${OPEN_FILES}; exec "$0" serve`;
    const server = startProgram(["sh", "-c", limited, binary], { env });
    const url = (await server.listening) ?? "";
    const create = async () => {
      const body = { email: newEmail(), metadata: largeMetadata };
      const { status } = await sendCall(url, token, "POST", "/users", { body });
      expect(status).toBe(201);
    };
    // Keeps its connection, which the following requests use.
    await create();
    const { port } = new URL(url);
    const clients = Array.from({ length: 2 * OPEN_FILES }, () =>
      connect({ host: "127.0.0.1", port: Number(port) }).on("error", () => {}),
    );
    while (readdirSync(`/proc/${server.pid}/fd`).length < OPEN_FILES) await Bun.sleep(5);
    // The checkpoint fails, because it cannot open the files.
    while (statSync(`${database}-wal`).size < 1.1 * CHECKPOINT_PAGES * 4096) await create();
    expect(server.output()).toContain(`the limit of open files is ${OPEN_FILES}: `);
    for (const client of clients) client.destroy();
    while (readdirSync(`/proc/${server.pid}/fd`).length >= OPEN_FILES) await Bun.sleep(5);
    // The next one succeeds.
    while (statSync(database).size < CHECKPOINT_PAGES * 4096) await create();
    expect(server.hasExited()).toBe(false);
    server.kill("SIGTERM");
    expect((await server.ended).code).toBe(0);
  },
  120_000,
);
