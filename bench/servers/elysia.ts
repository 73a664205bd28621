/**
 * What the framework itself costs: Elysia's route, the bearer plugin, a request id, an envelope and four
 * header fields, and nothing of ours: any token will do, nothing is checked, nothing is logged.
 */
import { Database } from "bun:sqlite";
import { bearer } from "@elysiajs/bearer";
import { Elysia } from "elysia";

const db = new Database(Bun.env["DATABASE"], { readwrite: true, strict: true });
db.run("pragma journal_mode = wal");

const one = db.prepare<{ version: number }, { id: number }>(`
  select id, email, name, metadata, version, created_at, updated_at
  from users
  where id = $id
`);

new Elysia({ strictPath: true, normalize: false })
  .use(bearer())
  .derive(({ headers }) => ({ request_id: headers["x-request-id"] ?? crypto.randomUUID() }))
  .onBeforeHandle(({ bearer: token, status }) => {
    if (token === undefined) return status(401);
    return undefined;
  })
  .mapResponse(({ responseValue, set, request_id }) => {
    const headers = { ...(set.headers as Record<string, string>), "x-request-id": request_id };
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
