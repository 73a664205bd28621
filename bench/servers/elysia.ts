/**
 * What the framework itself costs: Elysia's route, the bearer plugin, a request id, an envelope and four header
 * fields. It accepts any token and validates nothing. With LOG=on it writes the line that all others write.
 */
import { Database } from "bun:sqlite";
import { bearer } from "@elysiajs/bearer";
import { Elysia } from "elysia";
import { logEnabled, logRequest } from "./log.js";

const db = new Database(Bun.env["DATABASE"], { readwrite: true, strict: true });
db.run("pragma journal_mode = wal");
db.run("pragma cache_size = -16000");

const one = db.prepare<{ version: number }, { id: number }>(`
  select id, email, name, metadata, version, created_at, updated_at
  from users
  where id = $id
`);

new Elysia({ strictPath: true, normalize: false })
  .use(bearer())
  .derive(({ headers }) => ({
    requestId: headers["x-request-id"] ?? crypto.randomUUID(),
    startedMs: logEnabled ? performance.now() : 0,
  }))
  .onBeforeHandle(({ bearer: token, status }) => {
    if (token === undefined) return status(401);
    return undefined;
  })
  .mapResponse(({ request, responseValue, route, set, requestId, startedMs }) => {
    logRequest(request.method, route, 200, startedMs, requestId, "any");
    const headers = { ...(set.headers as Record<string, string>), "x-request-id": requestId };
    set.headers = {};
    return Response.json(responseValue, { headers });
  })
  .get("/api/v1/users/:id", ({ params, set }) => {
    const data = one.get({ id: Number(params.id) });
    set.headers["etag"] = `"${data?.version}"`;
    set.headers["cache-control"] = "private, no-cache";
    return { data, error: null };
  })
  .listen({ hostname: "127.0.0.1", port: Number(Bun.env["PORT"]), development: false });
