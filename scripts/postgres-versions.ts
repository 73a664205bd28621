// Runs tests on each version of PostgreSQL in test/postgres/versions: the contract of the store and the tests of the
// adapter in process, then the tests of the API and of replicas on the binary. Arguments are versions, e.g. 15 18; the
// default is all.
import { cpSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { makeDirectoryOfNobody } from "../test/postgres/instance.ts";

const packages = "test/postgres/versions/node_modules";
const tests: readonly (readonly string[])[] = [
  ["test", "--timeout=180000", "test/postgres", "test/domain/copy.test.ts"],
  ["scripts/postgres.ts", "bun", "test", "--timeout=180000", "test/http/database", "test/replicas"],
];

interface Link {
  /** The existing file, in the same directory as the link. */
  readonly source: string;
  readonly target: string;
}

/**
 * Copies the programs to a directory that `nobody` can read, because the server refuses to run as root, and creates
 * the symbolic links of the libraries, which npm packages cannot contain.
 */
function unpack(version: string): string {
  const directory = makeDirectoryOfNobody();
  cpSync(join(packages, `postgres-${version}`, "native"), join(directory, "native"), {
    recursive: true,
  });
  const links = readFileSync(join(directory, "native", "pg-symlinks.json"), "utf8");
  for (const { source, target } of JSON.parse(links) as Link[]) {
    if (dirname(source) !== dirname(target)) throw new Error(`${target} is in another directory`);
    symlinkSync(basename(source), join(directory, target));
  }
  return directory;
}

async function testVersion(version: string): Promise<boolean> {
  const directory = unpack(version);
  try {
    const env = {
      ...Bun.env,
      TEST_POSTGRES_PROGRAMS: join(directory, "native", "bin"),
      TEST_POSTGRES_REQUIRED: "true",
      TEST_POSTGRES_URL: "",
    };
    for (const args of tests) {
      const child = Bun.spawn([process.execPath, ...args], { env, stdio: ["ignore", 1, 2] });
      if ((await child.exited) !== 0) return false;
    }
    return true;
  } finally {
    rmSync(directory, { recursive: true });
  }
}

const available = [...new Bun.Glob("postgres-*/package.json").scanSync(packages)]
  .map((path) => dirname(path).replace("postgres-", ""))
  .sort();
const chosen = process.argv.slice(2);
const failed: string[] = [];
for (const version of chosen.length === 0 ? available : chosen) {
  console.log(`\nPostgreSQL ${version}`);
  if (!(await testVersion(version))) failed.push(version);
}
if (failed.length > 0) {
  console.error(`\nTests failed on PostgreSQL ${failed.join(", ")}`);
  process.exit(1);
}
