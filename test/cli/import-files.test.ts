// Files as spreadsheets and other shops write them, the file of rejected records, and updates.
import { expect, test } from "bun:test";
import { existsSync, readFileSync, symlinkSync } from "node:fs";
import { oddTexts } from "../contract/open.ts";
import { makeRandom } from "../support/random.ts";
import {
  exportOf,
  failed,
  imported,
  lines,
  makeHarnessWithDatabase as makeHarness,
  parsedLines,
  reported,
  summaryOf,
} from "./harness.ts";

const items = [{ sku: "A-1", quantity: 2, unit_price: 100 }];
const time = "2020-01-02T03:04:05.678Z";
const ann = { email: "ann@b.cd", name: "Ann" };
const small = { currency: "EUR", reference: "1", items };

type Fields = Readonly<Record<string, unknown>>;

/** Users as some program writes them. @returns the file, and the line at which each user begins */
function writeSomehow(random: (below: number) => number, isCsv: boolean, users: readonly Fields[]) {
  const pick = <Value>(values: readonly Value[]) => values[random(values.length)] as Value;
  const end = pick(isCsv ? ["\n", "\r\n", "\r"] : ["\n", "\r\n"]);
  const separator = pick([",", ";", "\t", "|"]);
  const named =
    separator === "|" ? [`sep=|${end}`, `"sep=|"${end}`] : ["", "", `sep=${separator}${end}`];
  const orders = ["email name import_error metadata", "import_error metadata email name"];
  const columns = pick(orders).split(" ");
  function cellOf(value: unknown): string {
    const text = typeof value === "string" ? value : JSON.stringify(value ?? {});
    if (text === "{}") return pick(["", '""']);
    const isQuoted = /["\r\n,;\t|]/.test(text) || random(2) === 0;
    return isQuoted ? `"${text.replaceAll('"', '""')}"` : text;
  }
  const join = (cells: readonly string[]) => cells.join(separator);
  const rowOf = (user: Fields) =>
    isCsv ? join(columns.map((name) => cellOf(user[name]))) : JSON.stringify(user);
  const spelled = pick([(name: string) => name, (name: string) => ` ${name.toUpperCase()} `]);
  const header = columns.map(spelled);
  let file = pick(["", "\ufeff"]);
  if (isCsv) file += pick(named) + join(header) + end;
  const lines = users.map((user) => {
    file += pick(["", "", end, isCsv ? join(["", '""', "", ""]) + end : `  ${end}`]);
    const line = file.split(/\r\n|[\r\n]/).length;
    file += rowOf(user) + end;
    return line;
  });
  return { file: pick([file, file.slice(0, -end.length)]), lines };
}

const seeds = Array.from({ length: 18 }, (_, at) => [at % 3 === 0 ? "ndjson" : "csv", at] as const);

for (const [format, seed] of seeds)
  test(`import of ${format} in any form and in pieces, and of rejected records that are corrected, stores each once: ${seed}`, async () => {
    using world = makeHarness();
    const random = makeRandom(7919 * (seed + 1));
    const users = [...oddTexts, "a\rb", "a\nb"].map((text, at) => ({
      ...{ email: `${at}@b.cd`, name: at % 3 === 0 ? null : text },
      metadata: at % 2 === 0 ? { [text]: text } : {},
    }));
    const wrong = users.map((user, at) =>
      at % 4 === seed % 4 ? { ...user, email: `wrong.${at}` } : user,
    );
    const { file, lines } = writeSomehow(random, format === "csv", wrong);
    const args = ["import", "users", "--format", format];
    const path = world.at("rejects");
    const [bytes, size] = [new TextEncoder().encode(file), 1 + random(seed % 2 === 0 ? 5 : 500)];
    const starts = [...bytes.keys()].filter((at) => at % size === 0);
    world.stdin.chunks = starts.map((at) => bytes.subarray(at, at + size));
    const first = await world.run(...args, "--rejects", path);
    const rejected = lines.filter((_, at) => at % 4 === seed % 4);
    const summary = summaryOf("users", users.length - rejected.length, 0, rejected.length);
    expect(first.stderr).toEndWith(`${summary}; rejected records are in ${path}\n`);
    const rejects = readFileSync(path, "utf8");
    const problems = rejects.match(/line \d+: email must be an email address/g);
    const problemOf = (line: number) => `line ${line}: email must be an email address`;
    expect<unknown>(problems).toEqual(rejected.map(problemOf));
    const again = world.at("again");
    await world.feed(rejects.replaceAll("must be", "was not"), ...args, "--rejects", again);
    const withoutLines = (text: string) => text.replaceAll(/line \d+/g, "");
    expect(withoutLines(readFileSync(again, "utf8"))).toBe(withoutLines(rejects));
    const correct = (text: string) => text.replaceAll(/wrong\.(\d+)/g, "$1@b.cd");
    const rest = await world.feed(correct(rejects), ...args);
    expect(rest.stderr).toEndWith(`${summaryOf("users", rejected.length)}\n`);
    const whole = await world.feed(correct(file), ...args);
    expect(whole.stderr).toEndWith(`${summaryOf("users", 0, users.length)}\n`);
    expect([first, rest, whole].map(({ code }) => code)).toEqual([1, 0, 0]);
    const expected = users.map((user) => expect.objectContaining(user));
    expect(await exportOf(world, "users")).toEqual(expect.arrayContaining(expected));
  });

test.each([
  ["has another one in quotes", '"a;b;c;d",email', "a;b;c;d"],
  ["has two equally often", "email,a;b", "a;b"],
])("import separates CSV by commas when the header %s", async (_what, header, skipped) => {
  using world = makeHarness();
  const row = header.startsWith("email") ? "ann@b.cd,1" : "1,ann@b.cd";
  const args = ["import", "users", "--format", "csv", "--ignore-unknown"];
  const outcome = await world.feed(`${header}\n${row}\n`, ...args);
  expect(outcome).toEqual(reported(`Skipped unknown fields: ${skipped}`, summaryOf("users", 1)));
});

test("import skips and lists 20 unknown fields, with escapes, when --ignore-unknown is given", async () => {
  using world = makeHarness();
  const skipping = async (table: string, text: string, ...more: string[]) =>
    (await world.feed(text, "import", table, "--ignore-unknown", ...more)).stderr;
  const skipped = (fields: string, table: "users" | "orders", created = 1) =>
    `Skipped unknown fields: ${fields}\n${summaryOf(table, created, 1 - created)}\n`;
  const user = { ...ann, metadata: { kept: "1" } };
  expect(await skipping("users", lines([{ ...user, phone: "1" }]))).toBe(skipped("phone", "users"));
  const order = { ...small, user_id: 1, items: [{ ...items[0], color: "red" }] };
  expect(await skipping("orders", lines([order]))).toBe(skipped("items.color", "orders"));
  const csv = "phone,email\n1,bob@b.cd\n";
  expect(await skipping("users", csv, "--format", "csv")).toBe(skipped("phone", "users"));
  expect(await exportOf(world, "users")).toMatchObject([
    { metadata: { kept: "1" } },
    { email: "bob@b.cd" },
  ]);
  const names = Array.from({ length: 21 }, (_, at) => `field${at}`);
  const more = lines([{ ...user, ...Object.fromEntries(names.map((name) => [name, 1])) }]);
  const shown = `${names.slice(0, 20).join(", ")} …`;
  expect(await skipping("users", more)).toBe(skipped(shown, "users", 0));
  // What a terminal would obey.
  const obeyed = lines([{ ...user, "\u001b[2K\nImported 9 users\u202e": 1 }]);
  const escaped = "\\u{1b}[2K\\u{a}Imported 9 users\\u{202e}";
  expect(await skipping("users", obeyed)).toBe(skipped(escaped, "users", 0));
  const rejected = await world.feed(obeyed, "import", "users");
  expect(rejected.stderr).toStartWith(`line 1: ${escaped} is not allowed`);
});

const times: [given: string, stored: string][] = [
  ["0000-01-01T00:00:00Z", "0000-01-01T00:00:00.000Z"],
  ["2017-01-01T00:59:60.5+01:00", "2016-12-31T23:59:59.500Z"],
  ["2026-11-20T00:30:00+01:00", "2026-11-19T23:30:00.000Z"],
  ["2026-11-20T09:00:00Z", "2026-11-20T09:00:00.000Z"],
  ["2026-11-20t09:00:00.123999999z", "2026-11-20T09:00:00.123Z"],
  ["2026-11-20 09:00:00.12-23:59", "2026-11-21T08:59:00.120Z"],
];

test("import keeps the times of records in UTC", async () => {
  using world = makeHarness();
  const records = times.map(([createdAt], at) => ({ email: `${at}@b.cd`, created_at: createdAt }));
  const run = (all: unknown[]) => world.feed(lines(all), "import", "users");
  expect(await run(records)).toEqual(imported("users", 6));
  expect(await run(records)).toEqual(imported("users", 0, 6));
  expect(await exportOf(world, "users")).toMatchObject(
    times.map(([, time], at) => ({ email: `${at}@b.cd`, created_at: time, updated_at: time })),
  );
  const other = await run([{ ...records[0], created_at: time }]);
  const taken = "line 1: email is already taken by user 1 (--update changes it)";
  expect(other.stderr).toStartWith(taken);
});

test("import --rejects keeps what is no JSON object, or cannot be written again as it was, as text", async () => {
  using world = makeHarness();
  const path = world.at("rejects");
  const texts = [
    '{"email":"trunc@example.com","na',
    "nothing",
    '{"email":"a@b.cd","email":"c@d.ef"}',
    '{"email":"a@b.cd","name":9007199254740993}',
    '{"email":"a@b.cd","name":1.00000000000000001}',
  ];
  const text = `${texts.join("\n")}\n${" ".repeat(2 ** 20)}{}\n`;
  expect((await world.feed(text, "import", "users", "--rejects", path)).code).toBe(1);
  const kept = parsedLines(readFileSync(path, "utf8"));
  expect(kept.map(({ import_text }) => import_text)).toEqual([...texts, undefined]);
  expect(kept.map(({ import_error }) => import_error)).toEqual([
    ...[1, 2].map((line) => `line ${line}: record must be valid JSON`),
    ...[3, 4, 5].map((line) => expect.stringMatching(new RegExp(`^line ${line}: (email|name) `))),
    "line 6: record must be at most 1048576 characters",
  ]);
  // A line that is not corrected.
  const outcome = await world.feed(lines([kept[1]]), "import", "orders", "--ignore-unknown");
  const why = "line 1: import_text must be replaced by the fields of the record";
  expect(outcome).toEqual(failed(why, summaryOf("orders", 0, 0, 1)));
});

test("import --rejects creates a file only for rejected records, also behind a link, and replaces none", async () => {
  using world = makeHarness();
  const path = world.at("rejects");
  const run = (text: string) => world.feed(text, "import", "users", "--rejects", path);
  expect([(await run(lines([ann]))).code, existsSync(path)]).toEqual([0, false]);
  symlinkSync("target", path);
  const { code } = await run("{}\n");
  expect([code, readFileSync(world.at("target"), "utf8")]).toEqual([1, expect.anything()]);
  const kept = readFileSync(path, "utf8");
  expect(await run('{"email":"new@b.cd"}\n{}\n')).toEqual(
    failed(`Cannot write ${path}: the file already exists; delete it, or choose another name`),
  );
  expect(readFileSync(path, "utf8")).toBe(kept);
  expect(await exportOf(world, "users")).toHaveLength(1);
});

const ofC1 = { ...ann, reference: "C-1", metadata: { plan: "pro" } };

test("import --update counts what it changes, and changes nothing when repeated or in a dry run", async () => {
  using world = makeHarness();
  const erased = { email: "2@erased.invalid", reference: "C-2" };
  await world.feed(lines([ofC1, erased]), "import", "users");
  const before = await exportOf(world, "users");
  const text = lines([
    { ...ofC1, name: "Anna" },
    { email: "bob@b.cd", reference: "C-2" },
    { email: "dee@b.cd" },
  ]);
  const counts = "1 user (1 updated, 1 erased, 0 unchanged, 0 rejected)";
  const args = ["import", "users", "--update"];
  expect(await world.feed(text, ...args, "--dry-run")).toEqual(reported(`Would import ${counts}`));
  expect(await exportOf(world, "users")).toEqual(before);
  expect(await world.feed(text, ...args)).toEqual(reported(`Imported ${counts}`));
  expect(await world.feed(text, ...args)).toEqual(
    reported("Imported 0 users (0 updated, 1 erased, 2 unchanged, 0 rejected)"),
  );
});

test("import --update of CSV keeps what has an empty cell or no column, and with an id clears the first", async () => {
  using world = makeHarness();
  await world.feed(lines([ofC1]), "import", "users");
  const update = (csv: string) => world.feed(csv, "import", "users", "--format", "csv", "--update");
  const updated = reported("Imported 0 users (1 updated, 0 unchanged, 0 rejected)");
  expect(await update("reference,email,name\nC-1,new@b.cd,\n")).toEqual(updated);
  expect(await exportOf(world, "users")).toMatchObject([{ ...ofC1, email: "new@b.cd" }]);
  const [{ version, created_at, updated_at }] = await exportOf(world, "users");
  const times = `${version},${created_at},${updated_at}`;
  const header = "id,email,name,version,created_at,updated_at";
  const withoutMetadata = await update(`${header}\n1,new@b.cd,Ann,${times}\n`);
  expect(withoutMetadata.stderr).toStartWith("line 2: metadata is required\n");
  expect(await update(`metadata,${header}\n,1,new@b.cd,,${times}\n`)).toEqual(updated);
  const cleared = { email: "new@b.cd", reference: "C-1", name: null, metadata: {} };
  expect(await exportOf(world, "users")).toMatchObject([cleared]);
});

test("import rejects different records with a common key in two batches, and an id far beyond the last one, and names the lines", async () => {
  using world = makeHarness();
  const metadata = { a: "1", b: "2" };
  const filler = Array.from({ length: 5_000 }, (_, at) => ({ email: `${at}@b.cd`, metadata }));
  const complete = { ...ofC1, email: "c@b.cd", version: 1, created_at: time, updated_at: time };
  // The rest is in the second batch.
  const text = lines([
    ...filler,
    { metadata: { b: "2", a: "1" }, email: "0@b.cd" },
    { email: "1@B.cd", name: "B" },
    { ...complete, id: 3 },
    { ...complete, id: 2 ** 25 },
  ]);
  const problems = [
    "line 5002: email is that of lines 2 and 5002, which have different values",
    "line 5003: id is that of lines 3 and 5003, which have different values",
    "line 5004: id must be at most 16777216 beyond the last one, 5000",
  ];
  const run = (...more: string[]) => world.feed(text, "import", "users", "--update", ...more);
  const counts = "5,000 users (0 updated, 1 unchanged, 3 rejected)";
  expect(await run("--dry-run")).toEqual(failed(...problems, `Would import ${counts}`));
  expect(await run()).toEqual(failed(...problems, `Imported ${counts}`));
});
