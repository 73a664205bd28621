// Records, lists and the change feed on SQLite, with a service that is killed under load. The page cache survives a killed
// process: sync.test.ts tests the disk.
import { expect } from "bun:test";
import { runChangesModel } from "../support/changes-model.ts";
import { makeDirectory } from "../support/directory.ts";
import { isLong } from "../support/long.ts";
import { test } from "./on-binary.ts";

/** How long records change: `CHANGES_MODEL_SECONDS` for a longer run. */
const SECONDS = Number(Bun.env["CHANGES_MODEL_SECONDS"] ?? (isLong ? 10 : 4));

test(
  "Acknowledged writes are stored exactly once, and changes are in order, when the service is killed again and again",
  async () => {
    using directory = makeDirectory();
    const database = directory.at("a.db");
    const world = { database, processes: 1, hasSnapshots: true, seconds: SECONDS };
    expect(await runChangesModel(world)).toBeGreaterThan(10 * SECONDS);
  },
  (2 * SECONDS + 60) * 1000,
);
