import { expect, test } from "bun:test";
import {
  exportOf,
  failed,
  lines,
  makeHarnessWithDatabase as makeHarness,
  reported,
} from "./harness.ts";

const ann = { email: "ann@b.cd", reference: "C-1", name: "Ann", metadata: { plan: "pro" } };

test("import --update changes records that exist, and nothing when repeated or in a dry run", async () => {
  using world = makeHarness();
  const erased = { email: "2@erased.invalid", reference: "C-2" };
  await world.feed(lines([ann, erased, { email: "cy@b.cd" }]), "import", "users");
  const before = await exportOf(world, "users");
  const text = lines([
    { ...ann, name: "Anna" },
    { email: "bob@b.cd", reference: "C-2" },
    { email: "cy@b.cd", reference: "C-3" },
    { email: "dee@b.cd" },
  ]);
  const counts = "1 user (2 updated, 1 erased, 0 unchanged, 0 rejected)";
  const args = ["import", "users", "--update"];
  expect(await world.feed(text, ...args, "--dry-run")).toEqual(reported(`Would import ${counts}`));
  expect(await exportOf(world, "users")).toEqual(before);
  expect(await world.feed(text, ...args)).toEqual(reported(`Imported ${counts}`));
  const after = await exportOf(world, "users");
  expect(after).toMatchObject([
    { ...ann, name: "Anna", version: 2 },
    { ...erased, version: 1 },
    { email: "cy@b.cd", reference: "C-3", version: 2 },
    { id: 4, email: "dee@b.cd", version: 1 },
  ]);
  expect(await world.feed(text, ...args)).toEqual(
    reported("Imported 0 users (0 updated, 1 erased, 3 unchanged, 0 rejected)"),
  );
  expect(await exportOf(world, "users")).toEqual(after);
});

test("import --update of CSV keeps what has an empty cell or no column, and with an id clears the first", async () => {
  using world = makeHarness();
  await world.feed(lines([ann]), "import", "users");
  const update = (csv: string) => world.feed(csv, "import", "users", "--format", "csv", "--update");
  const updated = reported("Imported 0 users (1 updated, 0 unchanged, 0 rejected)");
  expect(await update("reference,email,name\nC-1,new@b.cd,\n")).toEqual(updated);
  expect(await exportOf(world, "users")).toMatchObject([{ ...ann, email: "new@b.cd" }]);
  const [{ version, created_at, updated_at }] = await exportOf(world, "users");
  const times = `${version},${created_at},${updated_at}`;
  const header = "id,email,name,version,created_at,updated_at";
  const withoutMetadata = await update(`${header}\n1,new@b.cd,Ann,${times}\n`);
  expect(withoutMetadata.stderr).toStartWith("line 2: metadata is required\n");
  expect(await update(`metadata,${header}\n,1,new@b.cd,,${times}\n`)).toEqual(updated);
  const cleared = { email: "new@b.cd", reference: "C-1", name: null, metadata: {} };
  expect(await exportOf(world, "users")).toMatchObject([cleared]);
});

test("import --update rejects different records with a common key, and names both lines", async () => {
  using world = makeHarness();
  const filler = Array.from({ length: 5_000 }, (_, at) => ({ email: `${at}@b.cd` }));
  const differ = (field: string, both: string) =>
    `${field} is that of lines ${both}, which have different values`;
  const text = lines([
    // One user has the key that another one of the file has had.
    { email: "old@b.cd", name: "Guest" },
    { ...ann, email: "new@b.cd" },
    ...[{ email: "a@b.cd", reference: "1" }, ann, { email: "b@b.cd", reference: "1" }],
    ...filler,
    // In the second batch.
    ...[{ email: "0@b.cd" }, { email: "1@B.cd", name: "B" }, { email: "c@b.cd", reference: "1" }],
  ]);
  const args = ["import", "users", "--update"];
  await world.feed(lines([{ ...ann, email: "old@b.cd" }]), ...args);
  const expected = (verb: string, created: string, unchanged: string) =>
    failed(
      `line 1: ${differ("reference", "1 and 2")} (and 5 more like it)`,
      `line 5007: ${differ("email", "7 and 5007")}`,
      `${verb} ${created} users (0 updated, ${unchanged} unchanged, 7 rejected)`,
    );
  const dryRun = await world.feed(text, ...args, "--dry-run");
  expect(dryRun).toEqual(expected("Would import", "5,000", "1"));
  expect(await world.feed(text, ...args)).toEqual(expected("Imported", "5,000", "1"));
  const stored = await exportOf(world, "users");
  expect(stored.slice(0, 2)).toMatchObject([{ ...ann, email: "old@b.cd", version: 1 }, filler[0]]);
  expect(await world.feed(text, ...args)).toEqual(expected("Imported", "0", "5,001"));
  expect(await exportOf(world, "users")).toEqual(stored);
});

test("import names a reference that a spreadsheet has rounded", async () => {
  using world = makeHarness();
  const csv = (reference: string) => `email,reference\n${reference.length}@b.cd,"${reference}"\n`;
  for (const reference of ["1.67185E+13", "6,79E+16", "7E+15"]) {
    const { stderr } = await world.feed(csv(reference), "import", "users", "--format", "csv");
    const problem = `is a number that a spreadsheet has rounded, ${reference}`;
    expect(stderr).toStartWith(`line 2: reference ${problem}\n`);
    const items = [{ sku: "A", quantity: 1, unit_price: 1 }];
    const order = { user_reference: reference, reference: "1", currency: "EUR", items };
    const orders = await world.feed(lines([order]), "import", "orders");
    expect(orders.stderr).toStartWith(`line 1: user_reference ${problem}\n`);
  }
  for (const reference of ["1E", "E+13", "A1.67185E+13", "16718512345678"])
    expect(
      (await world.feed(csv(reference), "import", "users", "--format", "csv", "--update")).code,
    ).toBe(0);
});
