import { expect, test } from "bun:test";
import { mkdirSync, readdirSync, readFileSync, symlinkSync } from "node:fs";
import { dirname } from "node:path";
import { fail } from "../../src/base/error.ts";
import { openOutput } from "../../src/cli/files/streams.ts";
import { expectThrown } from "../support/expect-error.ts";
import {
  failed,
  type Harness,
  lines,
  makeHarness,
  type Options,
  openWith,
  parsedLines,
} from "./harness.ts";

/** A database with this number of users. The first one is `0@b.cd`. */
async function makeFilled(users = 1, options?: Options): Promise<Harness> {
  const world = makeHarness(options);
  const records = Array.from({ length: users }, (_, at) => ({ email: `${at}@b.cd` }));
  await world.feed(lines(records), "import", "users");
  return world;
}

test("export users writes all users by id, in the format of the API", async () => {
  using world = await makeFilled(700);
  const { code, stdout, stderr } = await world.run("export", "users");
  expect([code, stderr]).toEqual([0, "Exported 700 users\n"]);
  const rows = stdout.trim().split("\n");
  expect(rows).toHaveLength(700);
  const times =
    '"version":1,"created_at":"2026-11-20T18:57:03.120Z","updated_at":"2026-11-20T18:57:03.120Z"';
  expect(rows[699]).toBe(
    `{"id":700,"email":"699@b.cd","reference":null,"name":null,"metadata":{},${times}}`,
  );
});

test("export --from --to writes the records that were created in the period", async () => {
  using world = await makeFilled(1);
  const items = [{ sku: "A-1", quantity: 1, unit_price: 1 }];
  // Times do not ascend with the ids. Two of the three pages have records of the period.
  const timeOf = (at: number) => new Date(Date.UTC(2026, 9, 1, at % 1_500, at % 2)).toISOString();
  const orders = Array.from({ length: 3_000 }, (_, at) => ({
    ...{ user_id: 1, currency: "EUR", reference: `${at}`, items, created_at: timeOf(at) },
  }));
  await world.feed(lines(orders), "import", "orders");
  const [start, end] = ["2026-10-05T00:00:00.000Z", "2026-10-06T00:00:00.000Z"];
  const all = parsedLines((await world.run("export", "orders")).stdout);
  const inPeriod = all.filter(({ created_at }) => created_at >= start && created_at < end);
  expect(inPeriod).toHaveLength(48);
  expect(inPeriod.some(({ created_at }) => created_at === start)).toBe(true);
  expect(all.some(({ created_at }) => created_at === end)).toBe(true);
  // The same times with an offset.
  const period = ["--from", "2026-10-05T02:00:00+02:00", "--to", "2026-10-05 19:00:00-05:00"];
  const notice = "Exported 48 orders\n";
  expect(await world.run("export", "orders", ...period)).toEqual({
    ...{ code: 0, stdout: lines(inPeriod), stderr: notice },
  });
  const csv = await world.run("export", "orders", "--format", "csv", ...period);
  expect([csv.stdout.trimEnd().split("\n").length, csv.stderr]).toEqual([49, notice]);
  const idsOf = async (...options: string[]) =>
    parsedLines((await world.run("export", "orders", ...options)).stdout).map(({ id }) => id);
  const [before, after] = [await idsOf("--to", start), await idsOf("--from", end)];
  expect([...before, ...inPeriod.map(({ id }) => id), ...after].sort((a, b) => a - b)).toEqual(
    all.map(({ id }) => id),
  );
});

test("export writes all records when they are too large for one page", async () => {
  using world = makeHarness();
  const many = Array.from({ length: 50 }, (_, at) => [`k${at}`, "漢".repeat(400)]);
  const metadata = Object.fromEntries(many);
  const users = Array.from({ length: 150 }, (_, at) => ({ email: `${at}@b.cd`, metadata }));
  await world.feed(lines(users), "import", "users");
  const { code, stdout } = await world.run("export", "users");
  const ids = stdout
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line).id);
  expect([code, ids]).toEqual([0, users.map((_, at) => at + 1)]);
});

test("export as CSV starts with a header, even if there are no users", async () => {
  using world = makeHarness();
  await world.run("token", "create", "a");
  const header = "id,email,reference,name,metadata,version,created_at,updated_at\n";
  const path = world.at("none.csv");
  const outcome = await world.run("export", "users", "--output", path);
  expect(outcome).toEqual({ code: 0, stdout: "", stderr: `Exported 0 users to ${path}\n` });
  expect(readFileSync(path, "utf8")).toBe(header);
  await world.feed('{"email":"a@b.cd"}', "import", "users");
  const { stdout } = await world.run("export", "users", "--format", "csv");
  const now = '"2026-11-20T18:57:03.120Z"';
  expect(stdout).toBe(`${header}1,"a@b.cd",,,"{}",1,${now},${now}\n`);
});

test("export --output publishes a complete file, and keeps the old one when it fails", async () => {
  using world = await makeFilled();
  const path = world.at("a.ndjson");
  const link = world.at("link.ndjson");
  const files = () => readdirSync(world.at(".")).sort();
  await Bun.write(path, "old");
  symlinkSync(path, link);
  {
    // This export is never finished.
    using output = openOutput(path, true, "");
    output.write("half");
    expect(readFileSync(path, "utf8")).toBe("old");
  }
  expect(readFileSync(path, "utf8")).toBe("old");
  expect(files()).toEqual(["a.ndjson", "data", "link.ndjson"]);
  await world.run("export", "users", "--output", link, "--force");
  expect(readFileSync(path, "utf8")).toContain("0@b.cd");
  expect(files()).toEqual(["a.ndjson", "data", "link.ndjson", "link.ndjson.sha256"]);
});

test("export --output leaves no incomplete file when it fails at any point", async () => {
  using world = await makeFilled(1, {
    openStore: openWith(({ users }) => ({
      users: { ...users, list: () => fail("operator", "the disk fails") },
    })),
  });
  const outcome = await world.run("export", "users", "--output", world.at("a"));
  expect(outcome).toEqual(failed("the disk fails"));
  expect(readdirSync(world.at("."))).toEqual(["data"]);
  const path = world.at("b");
  {
    using output = openOutput(path, true, "");
    mkdirSync(path);
    expectThrown(output.finish, "operator", `Cannot write ${path}: it is a directory`);
  }
  expect(readdirSync(world.at(".")).sort()).toEqual(["b", "data"]);
});

test("export and backup leave no other files when the server is running", async () => {
  using world = await makeFilled(1_200);
  await world.run("export", "users");
  const files = () => readdirSync(dirname(world.path)).sort();
  expect(files()).toEqual(["test.db"]);
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

test.each([
  ["no/such/a", "no/such/a: no such file or directory"],
  ["/tmp --force", "/tmp: it is a directory"],
  ["/dev/full", "/dev/full: the disk is full"],
])("export --output %s prints one line on stderr when it fails", async (args, problem) => {
  using world = await makeFilled();
  const outcome = await world.run("export", "users", "--output", ...args.split(" "));
  expect(outcome).toEqual(failed(`Cannot write ${problem}`));
});

test("export --output does not overwrite a file when --force is missing", async () => {
  using world = await makeFilled();
  const path = world.at("a");
  await Bun.write(path, "old");
  const exists = (name: string) =>
    `Cannot write ${name}: the file already exists; delete it, or choose another name`;
  const outcome = await world.run("export", "users", "--output", path);
  expect(outcome).toEqual(failed(exists(path)));
  expect(readFileSync(path, "utf8")).toBe("old");
  expect((await world.run("export", "users", "--output", path, "--force")).code).toBe(0);
  expect(readFileSync(path, "utf8")).toContain("0@b.cd");

  const late = world.at("late");
  {
    using output = openOutput(late, false, "");
    output.write("new");
    await Bun.write(late, "meanwhile");
    expectThrown(output.finish, "operator", exists(late));
  }
  expect(readFileSync(late, "utf8")).toBe("meanwhile");
  expect(readdirSync(world.at(".")).sort()).toEqual(["a", "a.sha256", "data", "late"]);
});

test("export --output does not overwrite the database when --force is given", async () => {
  using world = await makeFilled();
  const before = readFileSync(world.path);
  const link = world.at("link-to-database");
  symlinkSync(world.path, link);
  const suffixes = ["-wal", "-shm", "-journal", "-serving", "-last-backup", "-archive"];
  const sidecars = suffixes.map((suffix) => world.path + suffix);
  for (const path of [world.path, link, ...sidecars]) {
    const outcome = await world.run("export", "users", "--output", path, "--force");
    expect(outcome).toEqual(failed(`Cannot write ${path}: it belongs to the database`));
  }
  expect(readFileSync(world.path)).toEqual(before);
});
