/** The thread of the archive. It chooses the storage, as main.ts does for commands. */
import { openStorage } from "./object-storage/open.ts";
import { type ArchiveRequest, createArchiveService } from "./sqlite/archive/thread/service.ts";
import { diskFiles } from "./sqlite/disk/files.ts";
import { systemMachine } from "./sqlite/disk/system-machine.ts";
import { verifyDatabase } from "./sqlite/whole/backup.ts";

declare const self: Worker;

const handle = createArchiveService({
  machine: systemMachine,
  openStorage,
  filesOf: (path) => diskFiles(path, verifyDatabase),
  respond: (response) => self.postMessage(response),
});

self.onmessage = ({ data }: MessageEvent<ArchiveRequest>) => void handle(data);
