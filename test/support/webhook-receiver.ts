import { setSystemTime } from "bun:test";
import { Webhook } from "standardwebhooks";

export const secrets: readonly string[] = [24, 64].map(
  (length) => `whsec_${Buffer.alloc(length, length).toString("base64")}`,
);

/** The body of a message, its id, and how many came until then. */
export type Received = Readonly<{ id: string; attempt: number; type: string; data: any }>;

/** @param reply `null` if the response never comes. @param nowMs what the published library takes for the time */
export function startReceiver(
  reply: (message: Received) => Response | number | null,
  nowMs: () => number = Date.now,
) {
  const all: Received[] = [];
  const accepted: Received[] = [];
  const invalid: unknown[] = [];
  const server = Bun.serve({
    hostname: "127.0.0.1",
    port: 0,
    async fetch(request) {
      const text = await request.text();
      const headers = request.headers.toJSON();
      setSystemTime(nowMs());
      try {
        for (const secret of secrets) new Webhook(secret).verify(text, headers);
      } catch (error) {
        invalid.push(error);
      }
      setSystemTime();
      const attempt = all.length + 1;
      const message = { id: headers["webhook-id"] ?? "", attempt, ...JSON.parse(text || "{}") };
      all.push(message);
      const status = reply(message);
      if (status === null) return new Promise<Response>(() => {});
      if (status === 204) accepted.push(message);
      return typeof status === "number" ? new Response(null, { status }) : status;
    },
  });
  return {
    ...{ url: server.url.href, all, accepted, invalid },
    ids: () => accepted.map(({ data }) => data.id),
    [Symbol.dispose]: () => void server.stop(true),
  };
}
