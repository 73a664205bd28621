import { expect, test } from "bun:test";
import { rmSync } from "node:fs";
import { exportOf, lines, makeHarnessWithDatabase as makeHarness, reported } from "./harness.ts";

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

test("import --update --dry-run judges the input alone when there is no database", async () => {
  using world = makeHarness();
  rmSync(world.path);
  const { stderr } = await world.feed(
    lines([ann, { ...ann, name: "Anna" }]),
    ...["import", "users", "--update", "--dry-run"],
  );
  expect(stderr).toEndWith("Would import 1 user (1 updated, 0 unchanged, 0 rejected)\n");
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
