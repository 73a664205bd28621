/**
 * Shows that this server is running, so that no other takes its archive by mistake, and notices when one has: a server
 * without writes would not.
 */
import type { ObjectStorage } from "../../domain/object-storage.ts";
import { encodeJson, type Generation, type Heartbeat, heartbeatKey } from "./format.ts";
import type { Log } from "./log.ts";
import type { Problems } from "./problems.ts";
import { HEARTBEAT_MS } from "./still.ts";

const MAX_BEATING = 2;

interface HeartbeatOptions {
  readonly storage: ObjectStorage;
  readonly generation: Generation;
  readonly log: Log;
  readonly problems: Problems;
}

/** @returns stops when it is disposed of. The first one is written */
export async function startHeartbeat(options: HeartbeatOptions): Promise<Disposable> {
  const { storage, generation, log, problems } = options;
  let sequence = 0;
  let beating = 0;

  async function beat(): Promise<void> {
    sequence += 1;
    const { number, name: writer } = generation;
    const state: Heartbeat = { generation: number, writer, confirmed: log.stored(), sequence };
    await storage.put(heartbeatKey(number), encodeJson(state));
    await log.isOpen();
  }

  // Part of the opening: a start that needs the archive does not wait for it without end.
  await problems.retry("opening", log.isEnded, beat);
  const timer = setInterval(() => {
    // One that takes long does not delay the next: that would look as if the server had ended.
    if (beating >= MAX_BEATING || log.isEnded()) return;
    beating += 1;
    beat()
      .then(
        () => problems.clear("heartbeat"),
        (error) => {
          if (!log.isEnded()) problems.report("heartbeat", error);
        },
      )
      .finally(() => {
        beating -= 1;
      });
  }, HEARTBEAT_MS);
  return { [Symbol.dispose]: () => clearInterval(timer) };
}
