// Files as spreadsheets and other shops write them, and the file of rejected records.
import { expect, test } from "bun:test";
import { existsSync, readFileSync, symlinkSync } from "node:fs";
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

const csv = "email,name\né@b.cd,😀\n";

test.each([
  ["separated as the first line says", `sep=;\r\n${csv.replaceAll(",", ";")}`],
  ["separated by another character, in quotes", `"sep=|"\n${csv.replaceAll(",", "|")}`],
  ["separated by semicolons", csv.replaceAll(",", ";")],
  ["separated by tabs", csv.replaceAll(",", "\t")],
  ["named in capital letters with spaces", csv.replace("email,name", " Email, NAME ")],
])("import reads the columns of CSV when they are %s", async (_what, file) => {
  using world = makeHarness();
  const outcome = await world.feed(file, "import", "users", "--format", "csv");
  expect(outcome).toEqual(imported("users", 1));
  expect(await exportOf(world, "users")).toMatchObject([{ email: "é@b.cd", name: "😀" }]);
});

test("import of CSV reads lines that end with CR alone, keeps a CR in quotes, and skips rows of empty cells", async () => {
  using world = makeHarness();
  const run = (file: string) => world.feed(file, "import", "users", "--format", "csv");
  const file = "sep=;\remail;name\ra@b.cd;Ann\r\rb@b.cd;Bob\rbroken\r";
  expect((await run(file)).stderr).toContain("line 6: record must have 2 cells");
  expect(await run('email,name\nc@b.cd,"A\rB"\r\n')).toEqual(imported("users", 1));
  const users = await exportOf(world, "users");
  expect(users.map(({ name }) => name)).toEqual(["Ann", "Bob", "A\rB"]);
  const rows = 'email,name\n,\n\n"",""\nd@b.cd,\n,Ann\n,\n';
  expect(await run(rows)).toEqual(failed("line 6: email is required", summaryOf("users", 1, 0, 1)));
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

test("import rejects an order that names its user twice, and finds references by their case", async () => {
  using world = makeHarness();
  await world.feed(lines([{ ...ann, reference: "C-1" }]), "import", "users");
  const text = lines([
    { ...small, user_email: "ann@b.cd", user_id: 1 },
    { ...small, user_reference: "c-1" },
    { ...small, user_reference: "C-1" },
  ]);
  expect(await world.feed(text, "import", "orders")).toEqual(
    failed(
      "line 1: user_email is not allowed with user_id",
      "line 2: user_reference must be the reference of an existing user",
      summaryOf("orders", 1, 0, 2),
    ),
  );
});

const times: [given: string, stored: string][] = [
  ["2026-11-20T09:00:00Z", "2026-11-20T09:00:00.000Z"],
  ["2026-11-20T00:30:00+01:00", "2026-11-19T23:30:00.000Z"],
  ["2026-11-20 09:00:00.12-23:59", "2026-11-21T08:59:00.120Z"],
  ["2026-11-20t09:00:00.123999999z", "2026-11-20T09:00:00.123Z"],
  ["2017-01-01T00:59:60.5+01:00", "2016-12-31T23:59:59.500Z"],
  ["0000-01-01T00:00:00Z", "0000-01-01T00:00:00.000Z"],
];

test.each(["users", "orders"] as const)("import keeps the times of %s in UTC", async (table) => {
  using world = makeHarness();
  if (table === "orders") await world.feed(lines([ann]), "import", "users");
  const fieldsOf = (at: number) =>
    table === "users"
      ? { email: `${at}@b.cd` }
      : { ...small, user_id: 1, reference: `${at}`, status: "shipped" };
  const records = times.map(([given], at) => ({ ...fieldsOf(at), created_at: given }));
  const run = (all: unknown[]) => world.feed(lines(all), "import", table);
  expect(await run(records)).toEqual(imported(table, 6));
  expect(await run(records)).toEqual(imported(table, 0, 6));
  expect((await exportOf(world, table)).slice(-6)).toMatchObject(
    times.map(([, time], at) => ({ ...fieldsOf(at), created_at: time, updated_at: time })),
  );
  const other = await run([{ ...records[0], created_at: time }]);
  expect(other.stderr).toMatch(/^line 1: \w+ is already taken by \w+ 1 \(--update changes it\)\n/);
});

test("import says what is wrong with a time", async () => {
  using world = makeHarness();
  const wrong = [
    ...["2026-11-20", "2026-11-20T09:00:00", "2026-02-29T09:00:00Z", "2026-11-20T24:00:00Z"],
    ...["9999-12-31T23:59:59-01:00", "2026-11-20T09:00:00+24:00", "20.11.2026", 1_700_000_000],
  ];
  const updatedAt = "2026-11-20T09:00:00+01:00";
  const text = lines([
    ...wrong.map((at) => ({ ...ann, created_at: at })),
    { ...ann, created_at: "2026-11-20T09:00:00Z", updated_at: updatedAt },
  ]);
  expect(await world.feed(text, "import", "users")).toEqual(
    failed(
      "line 1: created_at must be a time with an offset, such as 2026-11-20T18:57:03.120Z (and 7 more like it)",
      "line 9: updated_at must not be before created_at",
      summaryOf("users", 0, 0, 9),
    ),
  );
});

const order = { ...small, user_email: "ann@b.cd" };
const cells = JSON.stringify(JSON.stringify(items)).replaceAll('\\"', '""');
const currencies = ["EUR", "EURO", "EUR"];
/** Three orders, the second of which is rejected. */
const rejectedOrders: [format: string, text: string][] = [
  ["ndjson", lines(currencies.map((currency, at) => ({ ...order, currency, reference: `${at}` })))],
  [
    "csv",
    `user_email;currency;reference;items\n${currencies.map((each, at) => `ann@b.cd;${each};${at};${cells}\n`).join("")}`,
  ],
];

for (const [format, text] of rejectedOrders) {
  test(`import of ${format} stores each order once when --rejects is corrected and imported`, async () => {
    using world = makeHarness();
    await world.feed(lines([ann]), "import", "users");
    const path = world.at(`rejects.${format}`);
    const args = ["import", "orders", "--format", format];
    const first = await world.feed(text, ...args, "--rejects", path);
    expect(first.stderr).toEndWith(
      `${summaryOf("orders", 2, 0, 1)}; rejected records are in ${path}\n`,
    );
    const rejects = readFileSync(path, "utf8");
    expect(rejects).toContain("import_error");
    if (format === "csv") {
      expect(rejects).toStartWith('"import_error";"user_email";"currency";"reference";"items"\n');
    }
    const corrected = rejects.replace('EURO"', 'EUR"');
    expect(await world.feed(corrected, ...args)).toEqual(imported("orders", 1));
    expect(await world.feed(corrected, ...args)).toEqual(imported("orders", 0, 1));
    const whole = text.replace("EURO", "EUR");
    expect(await world.feed(whole, ...args)).toEqual(imported("orders", 0, 3));
  });
}

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

test("import --rejects replaces the error when a record is rejected again", async () => {
  using world = makeHarness();
  const path = world.at("rejects");
  const record = { email: "a", import_error: "line 7: before", reference: "shop:7", name: 1 };
  await world.feed(lines([record]), "import", "orders", "--rejects", path);
  const [again] = parsedLines(readFileSync(path, "utf8"));
  expect(again).toEqual({ ...record, import_error: expect.stringMatching(/^line 1: /) });
});

test("import --rejects creates a file only for rejected records, also behind a link, and replaces none", async () => {
  using world = makeHarness();
  const path = world.at("rejects");
  const run = (text: string, at = path) => world.feed(text, "import", "users", "--rejects", at);
  expect([(await run(lines([ann]))).code, existsSync(path)]).toEqual([0, false]);
  symlinkSync("target", path);
  const { code } = await run("{}\n");
  expect([code, readFileSync(world.at("target"), "utf8")]).toEqual([1, expect.anything()]);
  const kept = readFileSync(path, "utf8");
  expect(await run('{"email":"new@b.cd"}\n{}\n')).toEqual(
    failed(`Cannot write ${path}: the file already exists; delete it, or choose another name`),
  );
  expect(readFileSync(path, "utf8")).toBe(kept);
  const own = await run("{}\n", world.path);
  expect(own).toEqual(failed(`Cannot write ${world.path}: it belongs to the database`));
  expect(await exportOf(world, "users")).toHaveLength(1);
});
