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
const csvFiles: [string, string | Uint8Array][] = [
  ["separated as the first line says", `sep=;\r\n${csv.replaceAll(",", ";")}`],
  [
    "separated as the first line says, by another character",
    `"sep=|"\n${csv.replaceAll(",", "|")}`,
  ],
  ["separated by semicolons", csv.replaceAll(",", ";")],
  ["separated by tabs", csv.replaceAll(",", "\t")],
  ["named in capital letters with spaces", csv.replace("email,name", " Email, NAME ")],
];

for (const [what, file] of csvFiles) {
  test(`import reads the columns of CSV when they are ${what}`, async () => {
    using world = makeHarness();
    const outcome = await world.feed(file, "import", "users", "--format", "csv");
    expect(outcome).toEqual(imported("users", 1));
    expect(await exportOf(world, "users")).toMatchObject([{ email: "é@b.cd", name: "😀" }]);
  });
}

test("import of CSV reads lines that end with CR alone, and keeps a CR in quotes", async () => {
  using world = makeHarness();
  const file = "sep=;\remail;name\ra@b.cd;Ann\r\rb@b.cd;Bob\rbroken\r";
  const outcome = await world.feed(file, "import", "users", "--format", "csv");
  expect(outcome.stderr).toContain("line 6: record must have 2 cells");
  const quoted = 'email,name\nc@b.cd,"A\rB"\r\n';
  expect((await world.feed(quoted, "import", "users", "--format", "csv")).code).toBe(0);
  const users = await exportOf(world, "users");
  expect(users.map(({ name }) => name)).toEqual(["Ann", "Bob", "A\rB"]);
});

test("a file whose name ends with .tsv is separated by tabs, and an export can be imported", async () => {
  using world = makeHarness();
  await world.feed(lines([{ ...ann, name: "Lee,\tAnn" }]), "import", "users");
  const file = world.at("users.TSV");
  await world.run("export", "users", "--output", file);
  const [header, row] = readFileSync(file, "utf8").split("\n");
  expect(header).toStartWith("id\temail\treference\tname\t");
  expect(row).toStartWith('1\t"ann@b.cd"\t\t"Lee,\tAnn"\t');
  expect(await world.run("import", "users", file)).toEqual(imported("users", 0, 1));
});

const ambiguousHeaders: [string, string, string][] = [
  ["has another one in quotes", '"a;b;c;d",email', "a;b;c;d"],
  ["has two equally often", "email,a;b", "a;b"],
];

for (const [what, header, skipped] of ambiguousHeaders) {
  test(`import separates CSV by commas when the header ${what}`, async () => {
    using world = makeHarness();
    const row = header.startsWith("email") ? "ann@b.cd,1" : "1,ann@b.cd";
    const args = ["import", "users", "--format", "csv", "--ignore-unknown"];
    const outcome = await world.feed(`${header}\n${row}\n`, ...args);
    expect(outcome).toEqual(reported(`Skipped unknown fields: ${skipped}`, summaryOf("users", 1)));
  });
}

test("import lists 20 unknown fields when there are more", async () => {
  using world = makeHarness();
  const names = Array.from({ length: 21 }, (_, at) => `field${at}`);
  const user = { ...ann, ...Object.fromEntries(names.map((name) => [name, 1])) };
  const { stderr } = await world.feed(lines([user]), "import", "users", "--ignore-unknown");
  expect(stderr).toStartWith(`Skipped unknown fields: ${names.slice(0, 20).join(", ")} …\n`);
});

test("import skips and lists unknown fields when --ignore-unknown is given", async () => {
  using world = makeHarness();
  const ndjson = lines([{ ...ann, phone: "1", metadata: { kept: "1" } }]);
  expect(await world.feed(ndjson, "import", "users", "--ignore-unknown")).toEqual(
    reported("Skipped unknown fields: phone", summaryOf("users", 1)),
  );
  const order = { ...small, user_id: 1, items: [{ ...items[0], color: "red" }] };
  const args = ["import", "orders", "--ignore-unknown"];
  expect(await world.feed(lines([order]), ...args)).toEqual(
    reported("Skipped unknown fields: items.color", summaryOf("orders", 1)),
  );
  const columns = ["import", "users", "--format", "csv", "--ignore-unknown"];
  expect(await world.feed("phone,email\n1,bob@b.cd\n", ...columns)).toEqual(
    reported("Skipped unknown fields: phone", summaryOf("users", 1)),
  );
  expect(await exportOf(world, "users")).toMatchObject([
    { metadata: { kept: "1" } },
    { email: "bob@b.cd" },
  ]);
});

test("import escapes what a terminal obeys when a file has it in the names of fields", async () => {
  using world = makeHarness();
  const obeyed = "\u001b[2K\nImported 9 users\u202e";
  const escaped = "\\u{1b}[2K\\u{a}Imported 9 users\\u{202e}";
  const rejected = await world.feed(lines([{ ...ann, [obeyed]: 1 }]), "import", "users");
  expect(rejected.stderr).toStartWith(`line 1: ${escaped} is not allowed`);
  const skipping = ["import", "users", "--ignore-unknown"];
  const outcome = await world.feed(lines([{ ...ann, [obeyed]: 1 }]), ...skipping);
  expect(outcome).toEqual(reported(`Skipped unknown fields: ${escaped}`, summaryOf("users", 1)));
});

test("import of CSV skips rows of empty cells, and counts their lines", async () => {
  using world = makeHarness();
  const file = 'email,name\n,\n\n"",""\na@b.cd,\n,Ann\n,\n';
  const outcome = await world.feed(file, "import", "users", "--format", "csv");
  expect(outcome).toEqual(failed("line 6: email is required", summaryOf("users", 1, 0, 1)));
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

test.each(["users", "orders"] as const)(
  "import keeps the times of %s in UTC, and recognizes the records by them later",
  async (table) => {
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
    expect(other.stderr).toMatch(
      /^line 1: \w+ is already taken by \w+ 1 \(--update changes it\)\n/,
    );
  },
);

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

test("import --rejects keeps a line that is no JSON object as text, and only marks one that is too long", async () => {
  using world = makeHarness();
  const path = world.at("rejects");
  const text = `{"email":"trunc@example.com","na\nnothing\n${" ".repeat(2 ** 20)}{}\n`;
  const { code } = await world.feed(text, "import", "orders", "--rejects", path);
  expect(code).toBe(1);
  expect(parsedLines(readFileSync(path, "utf8"))).toEqual([
    {
      import_error: "line 1: record must be valid JSON",
      import_text: '{"email":"trunc@example.com","na',
    },
    { import_error: "line 2: record must be valid JSON", import_text: "nothing" },
    { import_error: "line 3: record must be at most 1048576 characters" },
  ]);
});

test("import --rejects keeps the text of an object that it cannot write again as it was", async () => {
  using world = makeHarness();
  const path = world.at("rejects");
  const texts = [
    '{"email":"a@b.cd","email":"c@d.ef"}',
    '{"email":"a@b.cd","name":9007199254740993}',
    '{"email":"a@b.cd","name":1.00000000000000001}',
  ];
  await world.feed(texts.map((text) => `${text}\n`).join(""), "import", "users", "--rejects", path);
  const kept = parsedLines(readFileSync(path, "utf8"));
  expect(kept.map(({ import_text }) => import_text)).toEqual(texts);
});

test("import --rejects replaces the error when a record is rejected again", async () => {
  using world = makeHarness();
  const path = world.at("rejects");
  const record = { email: "a", import_error: "line 7: before", reference: "shop:7", name: 1 };
  await world.feed(lines([record]), "import", "orders", "--rejects", path);
  const [again] = parsedLines(readFileSync(path, "utf8"));
  expect(again).toEqual({ ...record, import_error: expect.stringMatching(/^line 1: /) });
});

test("import says that import_text is to be replaced when a rejected line is not corrected", async () => {
  using world = makeHarness();
  // As written by --rejects.
  const rejects = lines([{ import_error: "line 1: record must be valid JSON", import_text: "{" }]);
  const args = ["import", "orders", "--ignore-unknown"];
  expect(await world.feed(rejects, ...args)).toEqual(
    failed(
      "line 1: import_text must be replaced by the fields of the record",
      summaryOf("orders", 0, 0, 1),
    ),
  );
});

test("import --rejects creates no file when no record is rejected", async () => {
  using world = makeHarness();
  const path = world.at("rejects");
  const { code } = await world.feed(lines([ann]), "import", "users", "--rejects", path);
  expect([code, existsSync(path)]).toEqual([0, false]);
});

test("import --rejects writes the target of a link when it does not exist yet", async () => {
  using world = makeHarness();
  symlinkSync("target", world.at("rejects"));
  const { code } = await world.feed("{}\n", "import", "users", "--rejects", world.at("rejects"));
  expect([code, readFileSync(world.at("target"), "utf8")]).toEqual([1, expect.anything()]);
});

test("import --rejects imports nothing when the file exists or belongs to the database", async () => {
  using world = makeHarness();
  const path = world.at("rejects");
  await Bun.write(path, "mine");
  const exists = await world.feed(`${lines([ann])}{}\n`, "import", "users", "--rejects", path);
  expect(exists).toEqual(
    failed(`Cannot write ${path}: the file already exists; delete it, or choose another name`),
  );
  expect(readFileSync(path, "utf8")).toBe("mine");
  const own = await world.feed(`{}\n`, "import", "users", "--rejects", world.path);
  expect(own.stderr).toBe(`Cannot write ${world.path}: it belongs to the database\n`);
  expect((await world.run("export", "users")).stderr).toBe("Exported 0 users\n");
});
