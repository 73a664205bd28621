// The messages of the server to the thread of its archive, which is a fake.
import { expect, test } from "bun:test";
import type { ArchiveOptions } from "../../../src/archive.ts";
import { openArchive } from "../../../src/sqlite/archive/client.ts";
import type { ArchiveRequest, ArchiveResponse } from "../../../src/sqlite/archive/messages.ts";
import { makeDirectory } from "../../directory.ts";
import { expectRejection } from "../../expect-error.ts";
import { withStore } from "../../open-store.ts";

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
  await using archive = await openArchive("a.db", optionsOf(worker));
  await Promise.all([archive.close(), archive.checkpoint(), archive.checkpoint()]);
  expect(requests).toEqual(["open", "close", "checkpoint", "checkpoint"]);
});

test("a server that stops writes nothing after the archive was asked to be complete", async () => {
  using directory = makeDirectory();
  const requests: string[] = [];
  let committedWalBytes = 2 ** 30;
  const worker = Object.assign(new EventTarget(), {
    onmessage(_event: { readonly data: ArchiveResponse }) {},
    postMessage(request: ArchiveRequest) {
      requests.push(request.type);
      if (request.type === "stop") return;
      const { type } = request;
      const response: ArchiveResponse =
        type === "committed" ? { type: "confirmed", commit: request.commit } : { type: "done" };
      // Longer than the interval at which a server looks at its files.
      setTimeout(() => worker.onmessage({ data: response }), type === "close" ? 2_500 : 1);
    },
    ref() {},
    unref() {},
    terminate() {},
  });
  // As if other processes wrote all the time.
  const writing = setInterval(() => {
    committedWalBytes += 1;
    const state = { secondsBehind: 0, bytesBehind: 0, committedWalBytes, lastBaseS: null };
    worker.onmessage({ data: { type: "state", state } });
  }, 50);
  const archive = { ...optionsOf(worker as unknown as Worker), commit: "sync" as const };
  const isWritten = () => requests.filter((type) => type === "committed").length > 1;
  const serve = async () => {
    requests.length = 0;
    while (!isWritten()) await Bun.sleep(10);
  };
  await withStore(directory.at("a.db"), serve, { exclusive: true, archive });
  clearInterval(writing);
  expect(requests.slice(requests.indexOf("close"))).toEqual(["close"]);
});

test("a start names the archive when that does not take the first write", async () => {
  using directory = makeDirectory();
  const worker = Object.assign(new EventTarget(), {
    onmessage(_event: { readonly data: ArchiveResponse }) {},
    postMessage({ type }: ArchiveRequest) {
      const response = { type: type === "committed" ? "lost" : "done" } as const;
      setTimeout(() => worker.onmessage({ data: response }), 1);
    },
    ref() {},
    unref() {},
    terminate() {},
  });
  const archive = { ...optionsOf(worker as unknown as Worker), commit: "sync" as const };
  const opening = withStore(directory.at("a.db"), async () => {}, { exclusive: true, archive });
  await expectRejection(opening, "unavailable", /^ARCHIVE_URL: the archive does not respond, /);
});
