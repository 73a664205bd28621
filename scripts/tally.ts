// Prints which tests failed in all runs of `make`, and how many passed and failed, from their reports.
// Without --parallel, a test that calls process.exit(0) makes `bun test` succeed without a report. A file that
// cannot be loaded is in no report. So a test file without a result counts as failed.
const runs: readonly { report: string; tests: string; without?: string }[] = [
  { report: "dist/test/unit.xml", tests: "test/**", without: "test/http/" },
  { report: "dist/test/binary.xml", tests: "test/{http,binary}/**" },
  { report: "dist/test/postgres.xml", tests: "test/{http/database,replicas}/**" },
  { report: "dist/test/citus.xml", tests: "test/http/database/**" },
  { report: "dist/test/image.xml", tests: "test/image/**" },
  { report: "dist/test/browser.xml", tests: "test/browser/**" },
  { report: "dist/test/openapi.xml", tests: "test/openapi" },
  { report: "dist/test/clients.xml", tests: "test/openapi/generators" },
  { report: "dist/test/s3rver.xml", tests: "test/s3rver" },
  { report: "dist/test/failover.xml", tests: "test/failover" },
];

const FAILURE =
  /<testcase name="([^"]*)"[^>]* file="([^"]*)"(?: line="(\d+)")?[^>]*>\s*<failure [^>]*?message="([^"]*)"/g;
const characters: Readonly<Record<string, string>> = {
  amp: "&",
  apos: "'",
  gt: ">",
  lt: "<",
  quot: '"',
  "#10": "\n",
};

function fromXml(text: string): string {
  return text.replaceAll(/&([a-z]+|#10);/g, (entity, name) => characters[name] ?? entity);
}

/** What a short run leaves to CI. */
const notRun = new Bun.Glob(Bun.env["NOT_RUN"] ?? "");

let passed = 0;
let failed = 0;
for (const run of runs) {
  const report = Bun.file(run.report);
  // The Makefile creates an empty report before each run. If there is none, the run was not reached.
  if (!(await report.exists())) continue;
  const xml = await report.text();

  const sums = /<testsuites [^>]*>/.exec(xml)?.[0] ?? "";
  const sum = (name: string) => Number(new RegExp(` ${name}="(\\d+)"`).exec(sums)?.[1] ?? 0);
  failed += sum("failures");
  passed += sum("tests") - sum("failures") - sum("skipped");
  for (const [, title = "", file, line, message = ""] of xml.matchAll(FAILURE)) {
    const problem = fromXml(message)
      .split("\n")
      .filter((text) => text !== "")
      .join(" | ");
    console.error(`${file}:${line ?? ""} ${fromXml(title)}: ${problem.slice(0, 300)}`);
  }

  for (const file of new Bun.Glob(`${run.tests}/*.test.ts`).scanSync()) {
    if (file.includes("node_modules/") || xml.includes(` file="${file}"`)) continue;
    if (run.without !== undefined && file.startsWith(run.without)) continue;
    if (notRun.match(file)) continue;
    console.error(`${run.report} has no result of ${file}`);
    failed += 1;
  }
}

console.log(`${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 && passed > 0 ? 0 : 1;
