/**
 * Shows that this server is running, so that no other takes its archive by mistake, and notices when one has: a server
 * without writes would not.
 */
import type { ArchiveContext } from "./context.ts";
import { encodeJson, type Generation, type Heartbeat, heartbeatKey } from "./format.ts";
import type { Log } from "./log.ts";
import { HEARTBEAT_MS } from "./still.ts";

/** @returns stops when it is disposed of. The first one is written */
export async function startHeartbeat(
  { storage, problems }: ArchiveContext,
  { number, name: writer }: Generation,
  log: Log,
): Promise<Disposable> {
  let sequence = 0;

  async function beat(): Promise<void> {
    sequence += 1;
    const beat = { generation: number, writer, confirmed: log.stored(), sequence };
    const state: Heartbeat = { ...beat, intervalMs: HEARTBEAT_MS };
    await storage.put(heartbeatKey(number), encodeJson(state));
    await log.isOpen();
  }

  // Part of the opening: a start that needs the archive does not wait for it without end.
  await problems.retry("opening", log.isEnded, beat);
  const timer = setInterval(() => {
    // One that takes long does not delay the next: that would look as if the server had ended.
    beat().then(
      () => problems.clear("heartbeat"),
      (error) => {
        if (!log.isEnded()) problems.report("heartbeat", error);
      },
    );
  }, HEARTBEAT_MS);
  return { [Symbol.dispose]: () => clearInterval(timer) };
}
