import { afterAll, expect, test } from "bun:test";
import {
  closeSync,
  constants,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  symlinkSync,
} from "node:fs";
import { dirname } from "node:path";
import { openInput, openOutput, writeFully } from "../../src/cli/streams.ts";
import { fail } from "../../src/error.ts";
import { oddTexts } from "../contract/open.ts";
import { makeDirectory } from "../directory.ts";
import { expectThrown } from "../expect-error.ts";
import { runProgram } from "../program.ts";
import { failed, lines, makeHarness, openWithUsers } from "./harness.ts";

const directory = makeDirectory();
afterAll(() => directory[Symbol.dispose]());

const oddUsers = oddTexts.map((text, at) => ({
  email: `${at}@b.cd`,
  name: at % 3 === 0 ? null : text,
  metadata: { [text]: text },
}));

test("export users writes all users by id, in the format of the API", async () => {
  using world = makeHarness();
  const many = Array.from({ length: 700 }, (_, at) => ({ email: `${at}@b.cd` }));
  await world.feed(lines(many), "import", "users");
  const { code, stdout, stderr } = await world.run("export", "users");
  expect([code, stderr]).toEqual([0, "Exported 700 users\n"]);
  const rows = stdout.trim().split("\n");
  expect(rows).toHaveLength(700);
  const times =
    '"version":1,"created_at":"2026-11-20T18:57:03.120Z","updated_at":"2026-11-20T18:57:03.120Z"';
  expect(rows[699]).toBe(`{"id":700,"email":"699@b.cd","name":null,"metadata":{},${times}}`);
});

test("export --sort -id writes the newest record first when there are several pages", async () => {
  using world = makeHarness();
  const many = Array.from({ length: 1_200 }, (_, at) => ({ email: `${at}@b.cd` }));
  await world.feed(lines(many), "import", "users");
  const items = [{ sku: "A-1", quantity: 1, unit_price: 1 }];
  const orders = many.map(() => ({ user_id: 1, currency: "EUR", items }));
  await world.feed(lines(orders), "import", "orders", "--key", "shop");
  for (const table of ["users", "orders"]) {
    const ascending = (await world.run("export", table)).stdout.trimEnd().split("\n");
    const descending = (await world.run("export", table, "--sort", "-id")).stdout;
    expect(descending).toStartWith('{"id":1200,');
    expect(descending.trimEnd().split("\n")).toEqual(ascending.toReversed());
  }
});

for (const format of ["ndjson", "csv"]) {
  test(`export as ${format} keeps every character when imported again`, async () => {
    using world = makeHarness();
    await world.feed(lines(oddUsers), "import", "users");
    const whole = await world.run("export", "users", "--format", format);
    using other = makeHarness();
    other.stdin.chunks = [new TextEncoder().encode(whole.stdout)];
    const imported = await other.run("import", "users", "--format", format);
    expect(imported.stderr).toEndWith(
      `\nImported ${oddUsers.length} users (0 unchanged, 0 rejected)\n`,
    );
    expect(await other.run("export", "users")).toEqual(await world.run("export", "users"));
  });
}

test("export as CSV starts with a header, even if there are no users", async () => {
  using world = makeHarness();
  await world.run("token", "create", "a");
  const header = "id,email,name,metadata,version,created_at,updated_at\n";
  const path = directory.at("none.csv");
  const outcome = await world.run("export", "users", "--output", path);
  expect(outcome).toEqual({ code: 0, stdout: "", stderr: `Exported 0 users to ${path}\n` });
  expect(readFileSync(path, "utf8")).toBe(header);
  await world.feed(lines([{ email: "a@b.cd" }]), "import", "users");
  const { stdout } = await world.run("export", "users", "--format", "csv");
  const now = '"2026-11-20T18:57:03.120Z"';
  expect(stdout).toBe(`${header}1,"a@b.cd",,"{}",1,${now},${now}\n`);
});

test("export --output publishes a complete file, and keeps the old one when it fails", async () => {
  using world = makeHarness();
  await world.feed(lines([{ email: "a@b.cd" }]), "import", "users");
  mkdirSync(directory.at("whole"));
  const path = directory.at("whole/a.ndjson");
  const link = directory.at("whole/link.ndjson");
  await Bun.write(path, "old");
  symlinkSync(path, link);
  {
    // This export is never finished.
    using output = openOutput(path, true);
    output.write("half");
    expect(readFileSync(path, "utf8")).toBe("old");
  }
  expect(readFileSync(path, "utf8")).toBe("old");
  expect(readdirSync(directory.at("whole")).sort()).toEqual(["a.ndjson", "link.ndjson"]);
  await world.run("export", "users", "--output", link, "--force");
  expect(readFileSync(path, "utf8")).toContain("a@b.cd");
  expect(readdirSync(directory.at("whole")).sort()).toEqual(["a.ndjson", "link.ndjson"]);
});

test("export --output leaves no incomplete file when it fails at any point", async () => {
  mkdirSync(directory.at("half"));
  using world = makeHarness({
    openStore: openWithUsers(() => ({
      exportPage: async () => fail("operator", "the disk fails"),
    })),
  });
  await world.feed(lines([{ email: "a@b.cd" }]), "import", "users");
  const outcome = await world.run("export", "users", "--output", directory.at("half/a"));
  expect(outcome).toEqual(failed("the disk fails"));
  expect(readdirSync(directory.at("half"))).toEqual([]);
  const path = directory.at("half/b");
  {
    using output = openOutput(path, true);
    mkdirSync(path);
    expectThrown(output.finish, "operator", `Cannot write ${path}: it is a directory`);
  }
  expect(readdirSync(directory.at("half"))).toEqual(["b"]);
});

test("export and backup leave no other files when the server is running", async () => {
  using world = makeHarness();
  const many = Array.from({ length: 1200 }, (_, at) => ({ email: `${at}@b.cd` }));
  await world.feed(lines(many), "import", "users");
  await world.run("export", "users");
  const files = () => readdirSync(dirname(world.path)).sort();
  expect(files()).toEqual(["test.db", "test.db-serving"]);
  const server = await world.serve();
  const exported = await world.run("export", "users");
  expect([exported.code, exported.stderr]).toEqual([0, "Exported 1,200 users\n"]);
  const backedUp = await world.run("backup", `${world.path}.copy`);
  expect([backedUp.code, backedUp.stdout]).toEqual([
    0,
    expect.stringContaining("1,200 users, 0 orders and 1 token "),
  ]);
  await server.stop();
  expect(files()).toEqual(["test.db", "test.db-last-backup", "test.db-serving", "test.db.copy"]);
});

test("export --output writes in place when the path is not a regular file", async () => {
  using world = makeHarness();
  await world.feed(lines([{ email: "a@b.cd" }]), "import", "users");
  const outcome = await world.run("export", "users", "--output", "/dev/null");
  expect(outcome).toEqual({ code: 0, stdout: "", stderr: "Exported 1 user to /dev/null\n" });
});

test("export names the database when it becomes unavailable", async () => {
  using world = makeHarness({
    openStore: openWithUsers(() => ({
      exportPage: async () => fail("unavailable", "the connection was lost"),
    })),
  });
  await world.feed(lines([{ email: "a@b.cd" }]), "import", "users");
  const outcome = await world.run("export", "users");
  expect(outcome).toEqual(failed(`Cannot use ${world.path}: the connection was lost`));
});

test("writeFully writes everything when the pipe is full and its reader slow", async () => {
  const [pipe, text] = [directory.at("pipe"), "ä😀".repeat(100_000)];
  Bun.spawnSync(["mkfifo", pipe]);
  // Opened for reading and writing, the pipe needs no other reader; non-blocking, a write of too much fails.
  const descriptor = openSync(pipe, constants.O_RDWR | constants.O_NONBLOCK);
  const slow = 'exec < "$0"; echo open; sleep 0.1; cat > "$0.read"';
  const reader = Bun.spawn(["sh", "-c", slow, pipe], { stdout: "pipe" });
  await reader.stdout.getReader().read();
  try {
    writeFully(descriptor, text);
  } finally {
    closeSync(descriptor);
  }
  await reader.exited;
  expect((await Bun.file(`${pipe}.read`).text()) === text).toBe(true);
});

test("openInput returns the size of regular files only", async () => {
  await Bun.write(directory.at("size"), "12345");
  expect(openInput(directory.at("size")).size).toBe(5);
  expect(openInput("/dev/null").size).toBeNull();
});

test.each([
  ["no/such/a", "no/such/a: no such file or directory"],
  ["/tmp --force", "/tmp: it is a directory"],
  ["/dev/full", "/dev/full: the disk is full"],
])("export --output %s prints one line on stderr when it fails", async (args, problem) => {
  using world = makeHarness();
  await world.feed(lines([{ email: "a@b.cd" }]), "import", "users");
  const outcome = await world.run("export", "users", "--output", ...args.split(" "));
  expect(outcome).toEqual(failed(`Cannot write ${problem}`));
});

test("export --output does not overwrite a file when --force is missing", async () => {
  using world = makeHarness();
  await world.feed(lines([{ email: "a@b.cd" }]), "import", "users");
  mkdirSync(directory.at("force"));
  const path = directory.at("force/a");
  await Bun.write(path, "old");
  const exists = `Cannot write ${path}: the file already exists (--force overwrites it)`;
  const outcome = await world.run("export", "users", "--output", path);
  expect(outcome).toEqual(failed(exists));
  expect(readFileSync(path, "utf8")).toBe("old");
  expect((await world.run("export", "users", "--output", path, "--force")).code).toBe(0);
  expect(readFileSync(path, "utf8")).toContain("a@b.cd");

  const late = directory.at("force/late");
  {
    using output = openOutput(late, false);
    output.write("new");
    await Bun.write(late, "meanwhile");
    const message = `Cannot write ${late}: the file already exists (--force overwrites it)`;
    expectThrown(output.finish, "operator", message);
  }
  expect(readFileSync(late, "utf8")).toBe("meanwhile");
  expect(readdirSync(directory.at("force")).sort()).toEqual(["a", "late"]);
});

test("export --output does not overwrite the database when --force is given", async () => {
  using world = makeHarness();
  await world.feed(lines([{ email: "a@b.cd" }]), "import", "users");
  const before = readFileSync(world.path);
  const link = directory.at("link-to-database");
  symlinkSync(world.path, link);
  const suffixes = ["-wal", "-shm", "-journal", "-serving", "-last-backup", "-archive"];
  const sidecars = suffixes.map((suffix) => world.path + suffix);
  for (const path of [world.path, link, ...sidecars]) {
    const outcome = await world.run("export", "users", "--output", path, "--force");
    expect(outcome).toEqual(failed(`Cannot write ${path}: it belongs to the database`));
  }
  expect(readFileSync(world.path)).toEqual(before);
});

test("export --output leaves no file when it is interrupted", async () => {
  using world = makeHarness();
  await world.run("seed", "--users", "1000", "--orders", "0");
  const path = directory.at("interrupted/users.csv");
  mkdirSync(directory.at("interrupted"));
  const args = ["export", "users", "--output", path];
  expect(await world.begin(...args).stop()).toEqual(failed("Interrupted"));
  expect(readdirSync(directory.at("interrupted"))).toEqual([]);
});

test.if(existsSync("/dev/fd"))(
  "openOutput writes into a pipe when its path has no real path",
  async () => {
    // For example `/dev/stdout` when stdout is a pipe.
    const main = `${import.meta.dir}/../../src/cli/streams.ts`;
    const code = `
      import { openOutput } from ${JSON.stringify(main)};
      using output = openOutput("/dev/stdout", false);
      output.write("records");
      output.finish();
    `;
    await Bun.write(directory.at("pipe.ts"), code);
    // The shell creates a pipe. Bun would create a socket.
    const command = `"${process.execPath}" pipe.ts | cat`;
    const before = readdirSync(directory.path);
    const { stdout } = await runProgram(["sh", "-c", command], { cwd: directory.path });
    expect(stdout).toBe("records");
    expect(readdirSync(directory.path)).toEqual(before);
  },
);
