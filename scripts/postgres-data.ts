// Creates the data of a PostgreSQL server in a directory, for tests to copy, if PostgreSQL is installed.
import { cpSync, rmSync } from "node:fs";
import { join } from "node:path";
import { findPrograms, initialize, makeDirectoryOfNobody } from "../test/postgres/instance.ts";

const [target = ""] = process.argv.slice(2);
const programs = findPrograms();
if (programs !== null) {
  // Its user may not be allowed to write to the target.
  const directory = makeDirectoryOfNobody();
  initialize(programs, join(directory, "data"));
  cpSync(join(directory, "data"), target, { recursive: true });
  rmSync(directory, { recursive: true });
}
