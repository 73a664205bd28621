/**
 * The ceiling: what Bun and SQLite alone reach. No authentication, no validation, no envelope, no headers, no log.
 * Writes are one transaction per request with the given durability. The list is plain SQL.
 */
import { Database } from "bun:sqlite";

const db = new Database(Bun.env["DATABASE"], { readwrite: true, strict: true });
db.run("pragma journal_mode = wal");
db.run(`pragma synchronous = ${Bun.env["DURABILITY"]}`);
db.run("pragma cache_size = -16000");
db.run("pragma wal_autocheckpoint = 4000");

const columns = "id, email, name, metadata, version, created_at, updated_at";
const one = db.prepare(`select ${columns} from users where id = $id`);
const count = db.prepare<{ total: number }, []>("select count(*) as total from users");
const page = db.prepare(`
  select ${columns} from users order by id limit $limit offset $offset
`);
const insert = db.prepare(`
  insert into users (email, email_key, name, metadata, version, created_at, updated_at)
  values ($email, $email, $name, '{}', 1, $now, $now)
  returning ${columns}
`);

Bun.serve({
  hostname: "127.0.0.1",
  port: Number(Bun.env["PORT"]),
  development: false,
  routes: {
    "/api/v1/users/:id": (request) => Response.json(one.get({ id: Number(request.params.id) })),
    "/api/v1/users": {
      GET(request) {
        const query = new URLSearchParams(request.url.slice(request.url.indexOf("?") + 1));
        const bounds = { limit: Number(query.get("limit")), offset: Number(query.get("offset")) };
        return Response.json({ data: page.all(bounds), meta: count.get() });
      },
      async POST(request) {
        const { email, name } = (await request.json()) as { email: string; name: string };
        const row = insert.get({ email, name, now: new Date().toISOString() });
        return Response.json(row, { status: 201 });
      },
    },
  },
});
