// Runs a command with a PostgreSQL server for its tests: the one at TEST_POSTGRES_URL, or a temporary one. If
// PostgreSQL is not available, the command is skipped; on CI that is an error.
import { findCluster } from "../test/postgres/cluster.ts";

const cluster = await findCluster(false);
if (cluster === null) process.exit(0);
const args = process.argv.slice(2);
// Empty until the tests have written it, so that a crash is noticed: see tally.ts.
const report = args.find((arg) => arg.startsWith("--reporter-outfile="));
if (report !== undefined) await Bun.write(report.slice(report.indexOf("=") + 1), "");
const child = Bun.spawn(args, {
  env: {
    ...Bun.env,
    TEST_DATABASE: "postgres",
    TEST_POSTGRES_URL: cluster.url,
  },
  stdio: ["inherit", "inherit", "inherit"],
});
process.exit(await child.exited);
