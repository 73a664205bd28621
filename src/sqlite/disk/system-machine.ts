import { systemClock } from "../../base/clock.ts";
import type { Machine } from "../archive/machine.ts";

/** Fast: an archive is written all the time, and read rarely. */
const COMPRESSION = { level: 1 };

export const systemMachine: Machine = {
  ...systemClock,
  newId: () => crypto.randomUUID(),
  compress: (bytes) => Bun.zstdCompress(bytes, COMPRESSION) as Promise<Buffer<ArrayBuffer>>,
};
