// A server has its locks and its log under one name of the database file.
import { expect, test } from "bun:test";
import { linkSync, readdirSync } from "node:fs";
import { newUser } from "../http/make.ts";
import { againstBinary, startServer } from "../http/server.ts";
import { makeDirectory } from "../support/directory.ts";
import { runBinary } from "../support/program.ts";

test.skipIf(!againstBinary)(
  "commands fail when a server uses the database under another name",
  async () => {
    await using server = await startServer();
    await newUser(server);
    using directory = makeDirectory();
    const link = directory.at("link.db");
    linkSync(server.database, link);
    const copy = directory.at("copy.db");
    const commands = [
      ["backup", copy],
      ["token", "create", "b"],
      ["check"],
      ["export", "users"],
      ["restore", link, "--database-url", copy],
    ];
    const run = async (args: string[]) => {
      const { code, stdout, stderr } = await runBinary(args, { DATABASE_URL: link });
      expect([args, code, stdout]).toEqual([args, 1, ""]);
      expect(stderr).toContain(
        "the file has 2 names (hard links), and another process has it open",
      );
    };
    await Promise.all(commands.map(run));
    // By the name that the server uses, they succeed.
    const own = await runBinary(["check"], { DATABASE_URL: server.database });
    expect([own.code, own.stdout]).toEqual([0, "ok\n"]);
    expect(readdirSync(directory.path)).toEqual(["link.db"]);
  },
  180_000,
);
