// Fails if the tests cover too few lines of src. `bun test` cannot check this: its threshold is per file, its
// total is the mean of the files' percentages, and it omits files that no test loads.
import { relative } from "node:path";

const MINIMUM = 0.95;

/** Number of executable lines, and of those that were executed. */
type Count = { found: number; hit: number };

const report = Bun.file("dist/test/lcov.info");
const counts = new Map<string, Count>();
for (const record of (await report.text()).split("end_of_record\n")) {
  const file = /^SF:(.+)$/m.exec(record)?.[1];
  if (file === undefined) continue;
  const number = (key: string) => Number(new RegExp(`^${key}:(\\d+)$`, "m").exec(record)?.[1]);
  counts.set(relative(".", file), { found: number("LF"), hit: number("LH") });
}

const transpiler = new Bun.Transpiler({ loader: "ts" });
const total: Count = { found: 0, hit: 0 };
for (const file of [...new Bun.Glob("src/**/*.ts").scanSync()].sort()) {
  let count = counts.get(file);
  if (count === undefined) {
    // The lines that the transpiler keeps are executable. It keeps none of a file that has only types.
    const code = transpiler.transformSync(await Bun.file(file).text());
    count = { found: code.split("\n").filter((line) => line.trim() !== "").length, hit: 0 };
    if (count.found > 0) console.log(`No test loads ${file} (${count.found} lines)`);
  }
  total.found += count.found;
  total.hit += count.hit;
}

const percent = (ratio: number) => `${(100 * ratio).toFixed(2)} %`;
// Without any line this is NaN, which must fail, too.
const ratio = total.hit / total.found;
console.log(`Tests cover ${percent(ratio)} of src: ${total.hit} of ${total.found} lines`);
if (!(ratio >= MINIMUM)) {
  console.error(`Coverage of src must be at least ${percent(MINIMUM)}`);
  process.exitCode = 1;
}
