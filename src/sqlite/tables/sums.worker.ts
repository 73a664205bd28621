import { dlopen } from "bun:ffi";
import { createSumsService, type SumsRequest } from "./sums.ts";

declare const self: Worker;

/** Of Linux. A niceness is not enough: a thread that wakes up for a request would wait until the slice of this one ends. */
const SCHED_IDLE = 5;

try {
  // Of this thread alone: requests get the processor at once. Elsewhere, or without glibc, both share it.
  const { symbols } = dlopen("libc.so.6", {
    ["sched_setscheduler"]: { args: ["i32", "i32", "ptr"], returns: "i32" },
  });
  symbols.sched_setscheduler(0, SCHED_IDLE, new Int32Array([0]));
} catch {}

const handle = createSumsService((reply) => self.postMessage(reply));

self.onmessage = ({ data }: MessageEvent<SumsRequest>) => handle(data);
