import { expect, test } from "bun:test";
import {
  exportOf,
  failed,
  lines,
  makeHarnessWithDatabase as makeHarness,
  reported,
} from "./harness.ts";

const ann = { email: "ann@b.cd", reference: "C-1", name: "Ann", metadata: { plan: "pro" } };

test("import --update counts what it changes, and changes nothing when repeated or in a dry run", async () => {
  using world = makeHarness();
  const erased = { email: "2@erased.invalid", reference: "C-2" };
  await world.feed(lines([ann, erased]), "import", "users");
  const before = await exportOf(world, "users");
  const text = lines([
    { ...ann, name: "Anna" },
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

test("import rejects different records with a common key in two batches, and names both lines", async () => {
  using world = makeHarness();
  const filler = Array.from({ length: 5_000 }, (_, at) => ({ email: `${at}@b.cd` }));
  // The last two are in the second batch.
  const text = lines([...filler, { email: "0@b.cd" }, { email: "1@B.cd", name: "B" }]);
  const problem = "line 5002: email is that of lines 2 and 5002, which have different values";
  const run = (...more: string[]) => world.feed(text, "import", "users", "--update", ...more);
  const counts = "5,000 users (0 updated, 1 unchanged, 1 rejected)";
  expect(await run("--dry-run")).toEqual(failed(problem, `Would import ${counts}`));
  expect(await run()).toEqual(failed(problem, `Imported ${counts}`));
});

test("import names a reference that a spreadsheet has rounded", async () => {
  using world = makeHarness();
  const csv = (reference: string) => `email,reference\n${reference.length}@b.cd,"${reference}"\n`;
  const update = (text: string) =>
    world.feed(text, "import", "users", "--format", "csv", "--update");
  for (const reference of ["1.67185E+13", "6,79E+16", "7E+15"]) {
    const { stderr } = await update(csv(reference));
    const problem = `is a number that a spreadsheet has rounded, ${reference}`;
    expect(stderr).toStartWith(`line 2: reference ${problem}\n`);
    const items = [{ sku: "A", quantity: 1, unit_price: 1 }];
    const order = { user_reference: reference, reference: "1", currency: "EUR", items };
    const orders = await world.feed(lines([order]), "import", "orders");
    expect(orders.stderr).toStartWith(`line 1: user_reference ${problem}\n`);
  }
  for (const reference of ["1E", "E+13", "A1.67185E+13", "16718512345678"])
    expect((await update(csv(reference))).code).toBe(0);
});
