/**
 * What one sync costs on this disk: overwrites a file page by page, as a write-ahead log that has
 * been used before is, and syncs after each. Prints the percentiles as JSON.
 * bun fsync.ts FOLDER COUNT
 */
import { closeSync, fsyncSync, openSync, rmSync, writeSync } from "node:fs";

/** One page with its header in the log. */
const FRAME = new Uint8Array(4096 + 24).fill(1);
/** Pages after which SQLite begins its log anew. */
const FRAMES = 1000;

const [folder, count] = Bun.argv.slice(2);
const path = `${folder}/fsync-${process.pid}`;
const file = openSync(path, "w");
for (let frame = 0; frame < FRAMES; frame += 1) writeSync(file, FRAME);
fsyncSync(file);

const durations_ms: number[] = [];
for (let i = 0; i < Number(count); i += 1) {
  const started_ms = performance.now();
  writeSync(file, FRAME, 0, FRAME.length, (i % FRAMES) * FRAME.length);
  fsyncSync(file);
  durations_ms.push(performance.now() - started_ms);
}
closeSync(file);
rmSync(path);

durations_ms.sort((left, right) => left - right);
const at = (part: number) => durations_ms[Math.floor(part * (durations_ms.length - 1))];
console.log(JSON.stringify({ p50_ms: at(0.5), p99_ms: at(0.99) }));
