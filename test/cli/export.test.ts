import { expect, test } from "bun:test";
import { mkdirSync, readdirSync, readFileSync, symlinkSync } from "node:fs";
import { fail } from "../../src/base/error.ts";
import { openOutput } from "../../src/cli/system/streams.ts";
import { expectThrown } from "../support/expect-error.ts";
import {
  failed,
  type Harness,
  lines,
  makeHarness,
  type Options,
  openWith,
  parsedLines,
  reported,
} from "./harness.ts";

async function makeFilled(users = 1, options?: Options): Promise<Harness> {
  const world = makeHarness(options);
  const records = Array.from({ length: users }, (_, at) => ({ email: `${at}@b.cd` }));
  await world.feed(lines(records), "import", "users");
  return world;
}

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

test("export writes all records by id, in the format of the API, when they are too large for one page", async () => {
  using world = makeHarness();
  const many = Array.from({ length: 50 }, (_, at) => [`k${at}`, "漢".repeat(400)]);
  const metadata = Object.fromEntries(many);
  const users = Array.from({ length: 150 }, (_, at) => ({ email: `${at}@b.cd`, metadata }));
  await world.feed(lines(users), "import", "users");
  const now = "2026-11-20T18:57:03.120Z";
  const rest = {
    reference: null,
    name: null,
    metadata,
    version: 1,
    created_at: now,
    updated_at: now,
  };
  const rows = users.map(({ email }, at) => ({ id: at + 1, email, ...rest }));
  expect(await world.run("export", "users")).toEqual({
    ...reported("Exported 150 users"),
    stdout: lines(rows),
  });
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

test.each([
  ["no/such/a", "no/such/a: no such file or directory"],
  ["/tmp --force", "/tmp: it is a directory"],
  ["/dev/full", "/dev/full: the disk is full"],
])("export --output %s prints one line on stderr when it fails", async (args, problem) => {
  using world = await makeFilled();
  const outcome = await world.run("export", "users", "--output", ...args.split(" "));
  expect(outcome).toEqual(failed(`Cannot write ${problem}`));
});

test("export --output publishes a complete file, follows a link, and replaces a file only with --force", async () => {
  using world = await makeFilled();
  const [path, link, late] = [world.at("a"), world.at("link"), world.at("late")];
  const exists = (name: string) =>
    `Cannot write ${name}: the file already exists; delete it, or choose another name`;
  await Bun.write(path, "old");
  symlinkSync(path, link);
  const outcome = await world.run("export", "users", "--output", path);
  expect(outcome).toEqual(failed(exists(path)));
  {
    // This export is never finished.
    using output = openOutput(path, true, "");
    output.write("half");
  }
  {
    using output = openOutput(late, false, "");
    output.write("new");
    await Bun.write(late, "meanwhile");
    expectThrown(output.finish, "operator", exists(late));
  }
  expect([path, late].map((name) => readFileSync(name, "utf8"))).toEqual(["old", "meanwhile"]);
  expect(readdirSync(world.at(".")).sort()).toEqual(["a", "data", "late", "link"]);
  expect((await world.run("export", "users", "--output", link, "--force")).code).toBe(0);
  expect(readFileSync(path, "utf8")).toContain("0@b.cd");
  const made = ["a", "data", "late", "link", "link.sha256"];
  expect(readdirSync(world.at(".")).sort()).toEqual(made);
});

test("export and backup do not write to a file of the database, also behind a link, or with --force", async () => {
  using world = await makeFilled();
  const before = readFileSync(world.path);
  const link = world.at("link-to-database");
  symlinkSync(world.path, link);
  const suffixes = ["-wal", "-shm", "-journal", "-serving", "-last-backup", "-archive"];
  const sidecars = suffixes.map((suffix) => world.path + suffix);
  for (const path of [world.path, link, ...sidecars]) {
    const exported = await world.run("export", "users", "--output", path, "--force");
    expect(exported).toEqual(failed(`Cannot write ${path}: it belongs to the database`));
  }
  for (const path of sidecars) {
    const made = await world.run("backup", path);
    expect(made).toEqual(failed(`Cannot back up to ${path}: the file belongs to the database`));
  }
  expect(readFileSync(world.path)).toEqual(before);
});
