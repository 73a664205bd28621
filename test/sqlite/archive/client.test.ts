// The messages of the server to the thread of its archive, which is a fake.
import { expect, test } from "bun:test";
import type { ArchiveOptions } from "../../../src/archive.ts";
import { openArchive } from "../../../src/sqlite/archive/client.ts";
import type { ArchiveRequest } from "../../../src/sqlite/archive/messages.ts";

/** @returns a thread that responds to each request after a moment */
function makeWorker() {
  const requests: string[] = [];
  const worker = Object.assign(new EventTarget(), {
    onmessage(_event: { readonly data: unknown }) {},
    postMessage({ type }: ArchiveRequest) {
      requests.push(type);
      setTimeout(() => worker.onmessage({ data: { type: "done" } }), 5);
    },
    ref() {},
    unref() {},
    terminate() {},
  });
  return { requests, worker: worker as unknown as Worker };
}

function optionsOf(worker: Worker): ArchiveOptions {
  return {
    url: "file:///archive",
    environment: {},
    createWorker: () => worker,
    restore: "never",
    onLog() {},
    intervalMs: 1000,
    commit: "async",
    keepMs: 1000,
    signal: new AbortController().signal,
  };
}

test("requests to the thread at the same time all have a response", async () => {
  const { worker, requests } = makeWorker();
  using archive = await openArchive("a.db", optionsOf(worker));
  await Promise.all([archive.close(), archive.checkpoint(), archive.checkpoint()]);
  expect(requests).toEqual(["open", "close", "checkpoint", "checkpoint"]);
});
