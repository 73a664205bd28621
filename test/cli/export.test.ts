import { expect, test } from "bun:test";
import { mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { fail } from "../../src/base/error.ts";
import { openOutput } from "../../src/cli/system/streams.ts";
import { orderStatuses } from "../../src/domain/order.ts";
import { expectThrown } from "../support/expect-error.ts";
import { fillDatabase } from "../support/fill.ts";
import { failed, lines, makeHarness, type Options, openWith, parsedLines } from "./harness.ts";

async function makeFilled(users = 1, options?: Options) {
  const world = makeHarness(options);
  const records = Array.from({ length: users }, (_, at) => ({ email: `${at}@b.cd` }));
  await world.feed(lines(records), "import", "users");
  return world;
}

/** No list has the orders from this time on. */
const FAILING = "2026-10-02T00:00:00.000Z";

test("export --from --to --status writes the records that were created in the period, in these statuses", async () => {
  const pages: number[] = [];
  const openStore = openWith(({ orders }) => {
    const list: typeof orders.list = (query) => {
      if (query.after !== undefined) pages.push(query.after);
      else if (query.created_from === FAILING) fail("unavailable");
      return orders.list(query);
    };
    return { orders: { ...orders, list } };
  });
  using world = await makeFilled(1, { openStore });
  const items = [{ sku: "A-1", quantity: 1, unit_price: 1 }];
  // An import without ids sorts them. Two of the three pages have records of the period.
  const timeOf = (at: number) => new Date(Date.UTC(2026, 9, 1, at % 1_500, at % 2)).toISOString();
  const orders = Array.from({ length: 3_000 }, (_, at) => ({
    ...{ user_id: 1, currency: "EUR", reference: `${at}`, items, created_at: timeOf(at) },
    status: orderStatuses[at % 5],
  }));
  await world.feed(lines(orders), "import", "orders");
  const timesOf = async (...options: string[]) => {
    const { stdout } = await world.run("export", "orders", ...options);
    return parsedLines(stdout).map(({ created_at }): string => created_at);
  };
  const [start, end] = ["2026-10-05T00:00:00.000Z", "2026-10-06T00:00:00.000Z"];
  const times = orders.map(({ created_at }) => created_at).sort();
  const inPeriod = times.filter((time) => time >= start && time < end);
  expect([inPeriod.length, inPeriod[0], times.includes(end)]).toEqual([48, start, true]);
  // The same times with an offset.
  const period = ["--from", "2026-10-05T02:00:00+02:00", "--to", "2026-10-05 19:00:00-05:00"];
  expect(await timesOf(...period)).toEqual(inPeriod);
  expect(await timesOf("--to", start)).toEqual(times.filter((time) => time < start));
  expect(await timesOf("--from", end)).toEqual(times.filter((time) => time >= end));
  const isWanted = ({ created_at, status }: (typeof orders)[0]) =>
    inPeriod.includes(created_at) && /paid|canceled/.test(`${status}`);
  const wanted = orders.filter(isWanted).map(({ created_at }) => created_at);
  expect(await timesOf(...period, "--status", "paid,canceled")).toEqual(wanted.sort());
  pages.splice(0);
  const csv = await world.run("export", "orders", "--format", "csv", ...period);
  const rows = csv.stdout.trimEnd().split("\n");
  expect([rows.length, csv.stderr]).toEqual([49, "Exported 48 orders\n"]);
  // Only the page from the first order of the period to the last one is read.
  expect(pages.splice(0)).toEqual([times.indexOf(start)]);
  expect(await timesOf("--from", "2027-01-01T00:00:00Z")).toEqual([]);
  expect(pages).toEqual([]);
  expect(await timesOf("--from", FAILING)).toEqual(times.filter((time) => time >= FAILING));
  expect(pages).toEqual([0, 1000, 2000, 3000]);
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

test("export --output leaves no file when the database fails", async () => {
  const openStore = openWith(({ users }) => ({
    users: { ...users, list: () => fail("operator", "the disk fails") },
  }));
  using world = await makeFilled(1, { openStore });
  const outcome = await world.run("export", "users", "--output", world.at("a"));
  expect([outcome, readdirSync(world.at("."))]).toEqual([failed("the disk fails"), ["data"]]);
});

test("export --output publishes a complete file or none, follows a link, and replaces a file only with --force", async () => {
  using world = await makeFilled();
  const [path, link, late] = [world.at("a"), world.at("link"), world.at("late")];
  const run = (...args: string[]) => world.run("export", "users", "--output", ...args);
  const files = () => readdirSync(world.at(".")).sort();
  const exists = (name: string) =>
    `Cannot write ${name}: the file already exists; delete it, or choose another name`;
  await Bun.write(path, "old");
  symlinkSync(path, link);
  expect(await run(path)).toEqual(failed(exists(path)));
  {
    // This export is never finished.
    using output = openOutput(path, true, "");
    output.write("half");
  }
  for (const [name, appear, problem] of [
    ["late", (target: string) => writeFileSync(target, "meanwhile"), exists(late)],
    ["directory", mkdirSync, `Cannot write ${world.at("directory")}: it is a directory`],
  ] as const) {
    using output = openOutput(world.at(name), name === "directory", "");
    appear(world.at(name));
    expectThrown(output.finish, "operator", problem);
  }
  expect([path, late].map((name) => readFileSync(name, "utf8"))).toEqual(["old", "meanwhile"]);
  expect(files()).toEqual(["a", "data", "directory", "late", "link"]);
  expect((await run(link, "--force")).code).toBe(0);
  expect(readFileSync(path, "utf8")).toContain("0@b.cd");
  expect(files()).toEqual(["a", "data", "directory", "late", "link", "link.sha256"]);
});

test("sums prints the sums of a period as CSV, while a server runs and without one", async () => {
  using world = makeHarness();
  await fillDatabase(world.path, 2, 3);
  const period = "--from 2025-12-31T12:00:00.0001-08:00 --to 2026-02-01T00:00:00Z";
  const flags = `${period} --interval month --time-zone America/Los_Angeles`.split(" ");
  const run = () => world.run("sums", ...flags);
  const stdout = [
    "from,to,currency,status,orders,total,refunded\n",
    '"2025-12-31T20:00:00.001Z","2026-01-01T08:00:00.000Z","EUR","pending",3,7500,0\n',
  ].join("");
  expect(await run()).toEqual({ code: 0, stdout, stderr: "" });
  const server = await world.serve();
  expect(await run()).toEqual({ code: 0, stdout, stderr: "" });
  await server.stop();
});

const ofDatabase = ["", "-wal", "-shm", "-journal", "-serving", "-last-backup", "-archive"].map(
  (suffix) => `data/test.db${suffix}`,
);
const noDirectory = "the directory does not exist";
const notDirectory = "a part of the path is not a directory";

test.each<[command: string, what: string, why: string, ...names: string[]]>([
  ["export users --output", "write", "no such file or directory", "none/a"],
  ["export users --force --output", "write", "it is a directory", "data"],
  ["export users --output", "write", "the disk is full", "/dev/full"],
  ["export users --force --output", "write", "it belongs to the database", "link", ...ofDatabase],
  ["import users --rejects", "write", "it belongs to the database", "link", ...ofDatabase],
  ["backup", "back up to", "the file belongs to the database", ...ofDatabase.slice(1)],
  ["backup", "back up to", noDirectory, "none/a.db"],
  ["backup", "back up to", notDirectory, "file/a.db"],
  ["backup --directory", "create", notDirectory, "file/a"],
  // The parent may be a disk that is not mounted.
  ["backup --directory", "create", "no such file or directory", "none/a"],
  ["copy --to", "copy to", "the file already exists", "data/test.db", "file"],
  ["copy --to", "copy to", noDirectory, "none/a.db"],
])("%s changes no file and says: Cannot %s …: %s", async (command, what, why, ...names) => {
  using world = await makeFilled();
  writeFileSync(world.at("file"), "");
  symlinkSync(world.path, world.at("link"));
  const state = () => [readdirSync(world.at(".")), readFileSync(world.path)];
  const before = state();
  for (const path of names.map((name) => (name.startsWith("/") ? name : world.at(name))))
    expect(await world.feed("{}\n", ...command.split(" "), path)).toEqual(
      failed(`Cannot ${what} ${path}: ${why}`),
    );
  expect(state()).toEqual(before);
});
