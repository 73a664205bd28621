import { setPriority } from "node:os";
import { createSumsService, type SumsRequest } from "./sums.ts";

declare const self: Worker;

try {
  // Of this thread alone, which it is on Linux only: requests get the processor first.
  if (process.platform === "linux") setPriority(10);
} catch {
  // A system call filter does not allow it.
}

const handle = createSumsService((reply) => self.postMessage(reply));

self.onmessage = ({ data }: MessageEvent<SumsRequest>) => handle(data);
