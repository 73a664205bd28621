import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { oddTexts } from "../contract/open.ts";
import {
  failed,
  type Harness,
  imported,
  lines,
  makeHarnessWithDatabase as makeHarness,
  summaryOf,
} from "./harness.ts";

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
const emails = (count: number): string =>
  lines(Array.from({ length: count }, (_, at) => ({ email: `${at}@b.cd` })));

async function expectSound(world: Harness): Promise<void> {
  expect(await world.run("check")).toEqual({ code: 0, stdout: "ok\n", stderr: "" });
}

const time = "2020-01-02T03:04:05.678Z";
const ann = { id: 7, email: "ann@b.cd", reference: "C-1", name: "Ann", metadata: { a: "b" } };
const complete = { ...ann, version: 2, created_at: time, updated_at: time };
const items = [{ sku: "A-1", quantity: 2, unit_price: 100 }];
const order = {
  ...{ id: 3, user_id: 7, currency: "EUR", reference: "1", items, total: 200, refunded: 50 },
  ...{ status: "paid", metadata: {}, version: 2, created_at: time, updated_at: time },
};

test.each(["ndjson", "csv"])("import restores all that was exported as %s", async (format) => {
  using world = makeHarness();
  const odd = oddTexts.map((text, at) => {
    const name = at % 3 === 0 ? null : text;
    return { email: `${at}@b.cd`, name, metadata: { [text]: text } };
  });
  await world.feed(lines([complete, ...odd]), "import", "users");
  // A currency that ISO 4217 has dropped, and a discount.
  const discounted = [...items, { sku: "gift-card", quantity: 1, unit_price: -50 }];
  const more = { id: 4, reference: null, currency: "DEM", items: discounted, total: 150 };
  const old = { ...order, ...more, metadata: { note: 'a, "b"' } };
  await world.feed(lines([order, old]), "import", "orders");
  const exported = { code: 0, stdout: lines([order, old]), stderr: "Exported 2 orders\n" };
  expect(await world.run("export", "orders")).toEqual(exported);
  expect((await world.run("export", "users")).stdout).toStartWith(lines([complete]));

  using other = makeHarness();
  for (const table of ["users", "orders"] as const) {
    const { stdout } = await world.run("export", table, "--format", format);
    const count = table === "users" ? 1 + odd.length : 2;
    const outcome = await other.feed(stdout, "import", table, "--format", format);
    expect(outcome).toEqual(imported(table, count));
    expect(await other.run("export", table)).toEqual(await world.run("export", table));
  }
  await expectSound(other);
});

test("import keeps earlier batches, and continues where it stopped, when its input ends or cannot be read", async () => {
  using world = makeHarness();
  // More than a batch, cut in the middle of a record.
  const text = emails(7000);
  const broken = await world.feed(text.slice(0, 150_000), "import", "users");
  expect(broken.code).toBe(1);
  expect(broken.stderr).toMatch(
    /^line \d+: record must be valid JSON\nImported [\d,]+ users \(0 unchanged, 1 rejected\)/,
  );
  const created = Number(/Imported ([\d,]+)/.exec(broken.stderr)?.[1]?.replaceAll(",", ""));
  expect(created).toBeGreaterThan(5000);
  const whole = await world.feed(text, "import", "users");
  expect(whole).toEqual(imported("users", 7000 - created, created));
  using other = makeHarness();
  const csv = `email\n${emails(6000).replaceAll(/\{"email":|\}/g, "")}"a"b\n`;
  const outcome = await other.feed(csv, "import", "users", "--format", "csv");
  expect([outcome.code, outcome.stdout]).toEqual([1, ""]);
  expect(outcome.stderr).toMatch(
    /^Cannot read the input: .*line 6002.* Earlier batches were saved; run the command again/,
  );
  expect((await other.run("export", "users")).stderr).toBe("Exported 5,000 users\n");
  for (const each of [world, other]) await expectSound(each);
});

const rounded = "is a number that a spreadsheet has rounded,";

test("import lists lines in order and exits with 1 when records are rejected", async () => {
  using world = makeHarness();
  await world.feed(lines([complete]), "import", "users");
  const references = ["1.67185E+13", "6,79E+16", "1E", "E+13", "A1.67185E+13", "16718512345678"];
  const noTimes = [
    ...["2026-11-20", "2026-11-20T09:00:00", "2026-02-29T09:00:00Z", "2026-11-20T24:00:00Z"],
    ...["9999-12-31T23:59:59-01:00", "2026-11-20T09:00:00+24:00", "20.11.2026", 1_700_000_000],
  ];
  const times = { email: "time@b.cd", created_at: "2026-11-20T09:00:00Z" };
  const text = [
    JSON.stringify({ email: "ANN@b.cd" }),
    "",
    JSON.stringify({ email: "nobody", name: "" }),
    JSON.stringify({ email: "fine@b.cd" }),
    '{"email":"a@b.cd","email":"c@b.cd"}',
    "[]",
    "{",
    JSON.stringify({ ...ann, email: "new@b.cd" }),
    JSON.stringify({ ...complete, version: 3 }),
    JSON.stringify({ email: "a@b.cd", version: 3 }),
    JSON.stringify({ email: "a@b.cd", nmae: "A" }),
    ...references.map((reference, at) => JSON.stringify({ email: `${at}@b.cd`, reference })),
    ...noTimes.map((at) => JSON.stringify({ ...times, created_at: at })),
    JSON.stringify({ ...times, updated_at: "2026-11-20T09:00:00+01:00" }),
  ].join("\r\n");
  expect(await world.feed(text, "import", "users")).toEqual(
    failed(
      "line 1: email is already taken by user 7 (--update changes it)",
      "line 3: email must be an email address of at most 254 characters; name must be text of 1 to 200 characters or null",
      "line 5: email is given more than once",
      "line 6: record must be a JSON object",
      "line 7: record must be valid JSON",
      "line 8: version is required; created_at is required; updated_at is required",
      "line 9: user 7 already exists with different values (--update changes it)",
      "line 10: version is read-only",
      "line 11: nmae is not allowed (--ignore-unknown skips unknown fields)",
      `line 12: reference ${rounded} 1.67185E+13`,
      `line 13: reference ${rounded} 6,79E+16`,
      "line 18: created_at must be a time with an offset, such as 2026-11-20T18:57:03.120Z (and 7 more like it)",
      "line 26: updated_at must not be before created_at",
      "Imported 5 users (0 unchanged, 20 rejected)",
    ),
  );
  await expectSound(world);
});

test("import rejects orders when their items, user or total are invalid", async () => {
  using world = makeHarness();
  await world.feed(lines([complete]), "import", "users");
  const plain = { user_id: 7, currency: "EUR", items };
  const named = { currency: "EUR", items, reference: "2" };
  const text = lines([
    { ...order, total: 201 },
    { ...order, user_id: 8 },
    { ...order, status: "lost" },
    { ...plain, items: [] },
    plain,
    { ...plain, items: [{ sku: "A", quantity: 1_000_000, unit_price: 2 ** 53 - 1 }] },
    { ...order, user_email: ann.email },
    { ...named, user_reference: "c-1" },
    { ...named, user_reference: "7E+15" },
    { ...named, user_email: "nobody@b.cd" },
    order,
    { ...named, user_reference: "C-1" },
  ]);
  expect(await world.feed(text, "import", "orders")).toEqual(
    failed(
      "line 1: total must be 200, the sum of the items",
      "line 2: user_id must be an existing user",
      "line 3: status must be one of pending, paid, shipped, delivered, canceled",
      "line 4: items must be an array of 1 to 500 items",
      "line 5: reference is required, unless the order has an id",
      "line 6: items must add up to at most 9007199254740991",
      "line 7: user_email is not allowed with user_id",
      "line 8: user_reference must be the reference of an existing user",
      `line 9: user_reference ${rounded} 7E+15`,
      "line 10: user_email must be the email of an existing user",
      "Imported 2 orders (0 unchanged, 10 rejected)",
    ),
  );
});

test("import rejects records of more than 64 KiB, with and without an id, and lines of more than 1 MiB", async () => {
  using world = makeHarness();
  const keys = Array.from({ length: 50 }, (_, at) => [`key ${at}`, "漢".repeat(500)]);
  const metadata = Object.fromEntries(keys);
  const large = [{ email: "a@b.cd", metadata }, { ...complete, metadata }, { email: "b@b.cd" }];
  expect(await world.feed(lines(large), "import", "users")).toEqual(
    failed(
      "line 1: record must be at most 65536 bytes of JSON as a whole record (and 1 more like it)",
      "Imported 1 user (0 unchanged, 2 rejected)",
    ),
  );
  const sizes = [2 ** 20, 2 ** 20 + 1, 20, 2 ** 20 + 1];
  const padded = sizes.map((size, at) => `{"email":"${at}@b.cd"}`.padEnd(size));
  const text = bytes(padded.join("\n"));
  // The last line arrives in its own chunk.
  const cut = 2 ** 21 + 3 + 21;
  world.stdin.chunks = [text.subarray(0, cut), text.subarray(cut), bytes("")];
  expect(await world.run("import", "users")).toEqual(
    failed(
      "line 2: record must be at most 1048576 characters (and 1 more like it)",
      "Imported 2 users (0 unchanged, 2 rejected)",
    ),
  );
});

test("import and export use the format that the name of a file says, or --format", async () => {
  using world = makeHarness();
  for (const [file, text, ...options] of [
    ["a.ndjson", lines([{ email: "a@b.cd", name: "Lee,\tAnn" }])],
    ["b.CSV", "email\nb@b.cd\n"],
    ["c.txt", "email\nc@b.cd\n", "--format", "csv"],
  ] as const) {
    await Bun.write(world.at(file), text);
    const outcome = await world.run("import", "users", world.at(file), ...options);
    expect(outcome).toEqual(imported("users", 1));
  }
  const file = world.at("users.TSV");
  await world.run("export", "users", "--output", file);
  const [header, row] = readFileSync(file, "utf8").split("\n");
  expect(header).toStartWith("id\temail\treference\tname\t");
  expect(row).toStartWith('1\t"a@b.cd"\t\t"Lee,\tAnn"\t');
  expect(await world.run("import", "users", file)).toEqual(imported("users", 0, 3));
});

test("import of CSV rejects malformed rows and JSON, numbers that are not canonical, words for null, and cells without a column name", async () => {
  using world = makeHarness();
  await world.feed(lines([complete]), "import", "users");
  const run = async (table: string, text: string, ...more: string[]) =>
    (await world.feed(text, "import", table, "--format", "csv", ...more)).stderr.split("\n");
  const malformed = [
    ...["metadata,name,email", '"{""a"":1}",x,bad@b.cd', "{,x,bad@b.cd"],
    ...['"{""a"":""1"",""a"":""2""}",x,bad@b.cd', "x,y", "x,y,z,", ",,nobody"],
    ...[',"this one begins\non a line and ends on another",nobody', ",,nobody"],
  ];
  expect(await run("users", malformed.join("\r\n"))).toEqual([
    "line 2: metadata.a must be text of at most 500 characters",
    "line 3: metadata must be valid JSON",
    "line 4: metadata.a is given more than once",
    "line 5: record must have 3 cells like the header, not 2 (and 1 more like it)",
    "line 7: email must be an email address of at most 254 characters (and 2 more like it)",
    ...[summaryOf("users", 0, 0, 8), ""],
  ]);
  const rows = ["8", "+7", "0x7", "7.0", "7e0", " 7", "07", "99999999999999999999"].map(
    (id) => `${id},${id.length}${id.at(-1)}@b.cd,,,2,${time},${time}\n`,
  );
  const ids = `id,email,name,metadata,version,created_at,updated_at\n${rows.join("")}`;
  expect(await run("users", ids)).toEqual([
    "line 3: id must be a whole number from 1 to 9007199254740991 (and 6 more like it)",
    ...[summaryOf("users", 1, 0, 7), ""],
  ]);
  const cell = JSON.stringify(JSON.stringify(items).replace("100", "1.00")).replaceAll('\\"', '""');
  const orders = `user_id,reference,currency,refunded,items\n7,1,EUR,5.00,${cell}\n`;
  const [problem] = await run("orders", orders);
  const rule = "must be a whole number in minor units: 500 for 5.00";
  expect(problem).toBe(`line 2: items[0].unit_price ${rule}; refunded ${rule}`);
  const users = "email,name,\na@b.cd,NULL,\nb@b.cd,\\N,\nc@b.cd,C,x\nd@b.cd,null,\n";
  expect(await run("users", users)).toEqual([
    "line 2: name is NULL: leave the cell empty if there is no value",
    "line 3: name is \\N: leave the cell empty if there is no value",
    "line 4: record has a cell in column 3, which has no name",
    ...[summaryOf("users", 1, 0, 3), ""],
  ]);
  expect(await run("users", users.replace(/a@.*N,\n/s, ""), "--ignore-unknown")).toEqual([
    ...["Skipped unknown fields: (no name)", summaryOf("users", 1, 1, 0), ""],
  ]);
});

const noText =
  ": line 1 is no text in UTF-8: save it as CSV UTF-8, decompress it, e.g. with zcat, or convert it";
const noObject =
  ": its first line is not a JSON object; convert an array with: jq -c '.[]', and import CSV with --format csv\n";
const notCsv = (line: number) =>
  `: the record at line ${line} is not valid CSV, or has more than 1048576 bytes: enclose `;

test.each<[string, string, string | Uint8Array, string]>([
  ["csv", "a column is unknown", "email,nmae\u200b\n", '"nmae\\u{200b}": use id, email, '],
  ["csv", "a column comes twice", "email,email\n", 'column "email" is given more than once'],
  ["csv", "a quote is never closed", 'email\na@b.cd\n"b@b.cd\nc@b.cd\n', notCsv(3)],
  ["csv", "a record is too long", `email\n"${"a".repeat(2 ** 21)}"\n`, notCsv(2)],
  ["csv", "it is no UTF-8", Buffer.from("email\na@b.cd\n\xe9@", "latin1"), ": line 3 is no text"],
  ["csv", "it is UTF-16", Buffer.from("\ufeffemail\n", "utf16le"), noText],
  ["ndjson", "it is a ZIP archive", "PK\x03\x04\x14\0", "a spreadsheet or another ZIP archive: "],
  ["ndjson", "it is compressed", Bun.gzipSync("{}"), noText],
  ["ndjson", "it is CSV", "Name;E-Mail;email\nAnn;x;a@b.cd\n", noObject],
  ["ndjson", "it is an array", '\ufeff[{"email":"a@b.cd"}]', noObject],
  ["ndjson", "it is a formatted object", '\n{\n  "email": "a@b.cd"\n}\n', noObject],
])("import of %s fails with one line when %s", async (format, _when, text, message) => {
  using world = makeHarness();
  const { code, stderr } = await world.feed(text, "import", "users", "--format", format);
  expect([code, stderr]).toEqual([1, expect.stringMatching(/^Cannot read the input: .*\n$/)]);
  expect(stderr).toContain(message);
  expect((await world.run("export", "users")).stderr).toBe("Exported 0 users\n");
});

test("import imports nothing when the input is empty, and fails when it only has no records", async () => {
  using world = makeHarness();
  for (const format of ["ndjson", "csv"]) {
    const args = ["import", "users", "--format", format];
    expect(await world.feed("", ...args)).toEqual(imported("users", 0));
    const headers = format === "csv" ? ["email\n", "email,name"] : [];
    for (const text of ["\n \n", "\ufeff", ...headers]) {
      const none = failed("Cannot read the input: it has no records");
      expect(await world.feed(text, ...args)).toEqual(none);
      expect(await world.feed(text, ...args, "--dry-run")).toEqual(none);
    }
  }
});

test("import lists each reason once, with its number, and at most 20", async () => {
  using world = makeHarness();
  const text = `${"{}\n".repeat(12_344)}{"email":"a@b.cd","nmae":1}\n`;
  expect(await world.feed(text, "import", "users")).toEqual(
    failed(
      "line 1: email is required (and 12,343 more like it)",
      "line 12345: nmae is not allowed (--ignore-unknown skips unknown fields)",
      summaryOf("users", 0, 0, 12_345),
    ),
  );
  // Numbers do not make another reason.
  await world.feed(emails(30), "import", "users");
  const renamed = emails(30).replaceAll("}", ',"name":"x"}');
  expect((await world.feed(renamed, "import", "users")).stderr).toStartWith(
    "line 1: email is already taken by user 1 (--update changes it) (and 29 more like it)\nImported",
  );
  const names = Array.from({ length: 30 }, (_, at) => ({ ["x".repeat(at + 1)]: at }));
  const printed = (await world.feed(lines(names), "import", "users")).stderr.split("\n");
  expect(printed.slice(20, -2)).toEqual(["… and 10 more"]);
});
