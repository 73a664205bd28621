/** The other side of `thread.ts`. */
import { configure, connect } from "./connection.ts";
import type { Task } from "./thread.ts";

declare const self: Worker;

function run({ path, sql, values }: Task): void {
  // Opened each time, so that no connection is left when the thread is ended.
  using db = connect(path);
  configure(db);
  db.prepare(sql).all(...values);
}

self.onmessage = ({ data }: MessageEvent<Task>) => {
  try {
    run(data);
    self.postMessage(null);
  } catch (error) {
    self.postMessage(error instanceof Error ? error.message : String(error));
  }
};
