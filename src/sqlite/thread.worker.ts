/** The other thread of `checkpoint.ts`: one checkpoint for each path that it is told. */
import { configure, connect } from "./connection.ts";

declare const self: Worker;

function checkpoint(path: string): void {
  // Opened each time, so that no connection is left when the thread is ended.
  using db = connect(path);
  configure(db);
  db.run("pragma wal_checkpoint(passive)");
}

self.onmessage = ({ data }: MessageEvent<string>) => {
  try {
    checkpoint(data);
  } catch {
    // The disk is full or fails: the writes themselves will say so.
  }
  self.postMessage(null);
};
