/** The thread of the archive. It chooses the storage, as main.ts does for commands. */
import { openStorage } from "./object-storage/open.ts";
import { type ArchiveRequest, createArchiveService } from "./sqlite/archive/service.ts";

declare const self: Worker;

const handle = createArchiveService(openStorage, (response) => self.postMessage(response));

self.onmessage = ({ data }: MessageEvent<ArchiveRequest>) => void handle(data);
