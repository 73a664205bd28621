import { Database } from "bun:sqlite";
import { expect, test } from "bun:test";
import { userFields } from "../contract/open.ts";
import { makeDirectory } from "../support/directory.ts";
import { openDatabase } from "./open-database.ts";

test("a dry import does not block checkpoints when called repeatedly", async () => {
  using directory = makeDirectory();
  const path = directory.at("a.db");
  await using store = await openDatabase(path);
  using db = new Database(path);
  const checkpoint = db.prepare<{ busy: number }, []>("pragma wal_checkpoint(truncate)");
  for (let attempt = 0; attempt < 2; attempt += 1) {
    await store.users.create(userFields(), null);
    await store.bulk.users.import([userFields()], { dryRun: true });
    expect(checkpoint.get()).toMatchObject({ busy: 0 });
  }
});
