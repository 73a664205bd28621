/** What the thread of the archive does for the thread of the server. */
import type { ArchiveLog } from "../../archive.ts";
import { AppError, fail, messageOf } from "../../error.ts";
import type { OpenStorage } from "../../object-storage.ts";
import { type Archiver, createArchiver } from "./archiver.ts";
import type { ArchiveRequest, ArchiveResponse } from "./messages.ts";
import { requireDatabase } from "./missing.ts";

type Request<Type extends ArchiveRequest["type"]> = Extract<ArchiveRequest, { type: Type }>;

/** @returns handles a request. Those that have a response are sent one by one */
export function createArchiveService(
  openStorage: OpenStorage,
  respond: (response: ArchiveResponse) => void,
): (request: ArchiveRequest) => Promise<void> {
  let opened: {
    readonly request: Request<"open">;
    readonly storage: ReturnType<OpenStorage>;
  } | null = null;
  let archiver: Archiver | null = null;
  const log: ArchiveLog = (...line) => respond({ type: "log", line });

  async function open(request: Request<"open">): Promise<void> {
    const storage = openStorage(request.url, request.environment);
    opened = { request, storage };
    await requireDatabase(storage, request.path, request.restoreIfMissing, log);
  }

  async function start({ files, intervalMs, keepMs, commit }: Request<"start">): Promise<void> {
    if (opened === null) fail("internal", "the archive is not open");
    const { request, storage } = opened;
    archiver = createArchiver({
      path: request.path,
      files,
      storage,
      intervalMs,
      keepMs,
      nowMs: Date.now,
      log,
      onConfirmed: (confirmed) => respond({ type: "confirmed", commit: confirmed }),
      onState: (state) => respond({ type: "state", state }),
    });
    await archiver.start();
    if (commit === "sync") await archiver.untilBase();
  }

  async function handle(request: ArchiveRequest): Promise<void> {
    switch (request.type) {
      case "open":
        return open(request);
      case "start":
        return start(request);
      case "checkpoint":
        return archiver?.checkpoint();
      case "close":
        return archiver?.close();
      case "committed":
        return archiver?.committed(request.commit);
    }
  }

  return async (request) => {
    try {
      await handle(request);
      if (request.type !== "committed") respond({ type: "done" });
    } catch (error) {
      const code = error instanceof AppError ? error.code : null;
      respond({ type: "failed", code, message: messageOf(error) });
    }
  };
}
