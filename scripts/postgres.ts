// Runs a command with a PostgreSQL server for its tests: of TEST_POSTGRES_URL, or one started for it and
// ended with it. Where there is none the command is not run, as the other tests have told; on CI that fails.
import { findCluster } from "../test/postgres/cluster.ts";

const cluster = await findCluster(false);
if (cluster === null) process.exit(0);
const words = process.argv.slice(2);
// Empty until the tests have written it: see tally.ts.
const report = words.find((word) => word.startsWith("--reporter-outfile="));
if (report !== undefined) await Bun.write(report.slice(report.indexOf("=") + 1), "");
const child = Bun.spawn(words, {
  env: {
    ...Bun.env,
    TEST_DATABASE: "postgres",
    TEST_POSTGRES_URL: cluster.url,
    ...(cluster.own !== null && { TEST_POSTGRES_KEEP: "true" }),
  },
  stdio: ["inherit", "inherit", "inherit"],
});
process.exit(await child.exited);
