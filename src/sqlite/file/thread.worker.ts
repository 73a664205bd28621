/** The worker of `thread.ts`. Replies `null`, or the message of the error. */
import { configure, connect, connectAtRest } from "./connection.ts";
import { withIoErrors } from "./errors.ts";
import type { Task } from "./thread.ts";

declare const self: Worker;

function run({ path, sql, values, atRest }: Task): void {
  // Opened per statement, so that terminating the thread leaves no open connection.
  using db = atRest ? connectAtRest(path) : connect(path);
  withIoErrors(db, () => {
    if (!atRest) configure(db);
    db.prepare(sql).all(...values);
  });
}

self.onmessage = ({ data }: MessageEvent<Task>) => {
  try {
    run(data);
    self.postMessage(null);
  } catch (error) {
    self.postMessage(error instanceof Error ? error.message : String(error));
  }
};
