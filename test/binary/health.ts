import type { TestServer } from "../http/server.ts";

/** The health check reuses its last result for up to five seconds. */
const TIMEOUT_MS = 40_000;

export async function untilHealth(server: TestServer, wanted: number): Promise<void> {
  const deadlineMs = performance.now() + TIMEOUT_MS;
  for (;;) {
    const { status } = await server.call("GET", "/health", { token: null });
    if (status === wanted) return;
    if (performance.now() > deadlineMs) throw new Error(`health stays at ${status}`);
    await Bun.sleep(50);
  }
}
