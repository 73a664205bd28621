/** Hono on Bun, composed of Hono's own middleware as in its documentation. */
import { zValidator } from "@hono/zod-validator";
import { type Context, Hono } from "hono";
import { bearerAuth } from "hono/bearer-auth";
import { HTTPException } from "hono/http-exception";
import { requestId } from "hono/request-id";
import { routePath } from "hono/route";
import { logRequest } from "./log.js";
import { OrderInput, PageQuery, UserId, UserInput } from "./schemas.js";
import { openStore } from "./store.js";

const store = await openStore();

interface Env {
  Variables: { token: { name: string; hash: string }; requestId: string };
}

function sendRecord(c: Context<Env>, row: { version: number }, status: 200 | 201 = 200) {
  const etag = `"${row.version}"`;
  c.header("ETag", etag);
  c.header("Cache-Control", "private, no-cache");
  if (c.req.header("if-none-match") === etag) return c.body(null, 304);
  return c.json({ data: row, error: null }, status);
}

/** The validator's own response is no envelope. */
function reject(result: { success: boolean; error?: { message: string } }, c: Context) {
  if (result.success) return;
  return c.json({ data: null, error: `Validation failed: ${result.error?.message}` }, 400);
}

const app = new Hono<Env>();
app.use(requestId());
app.use(async (c, next) => {
  const startedMs = performance.now();
  await next();
  const token = c.get("token")?.name;
  const { method } = c.req;
  logRequest(method, routePath(c, -1), c.res.status, startedMs, c.get("requestId"), token);
});
app.use(
  "/api/*",
  bearerAuth<Env>({
    verifyToken: async (credentials, c) => {
      const token = await store.authenticate(credentials);
      if (token !== null) c.set("token", token);
      return token !== null;
    },
  }),
);
app.onError((error, c) => {
  const status = error instanceof HTTPException ? error.status : 500;
  return c.json({ data: null, error: status === 500 ? "internal error" : "unauthorised" }, status);
});

app.get("/api/v1/users/:id", zValidator("param", UserId, reject), async (c) => {
  const user = await store.getUser(c.req.valid("param").id);
  if (user === null) return c.json({ data: null, error: "user not found" }, 404);
  return sendRecord(c, user);
});

app.get("/api/v1/users", zValidator("query", PageQuery, reject), async (c) => {
  const bounds = c.req.valid("query");
  const { users, total } = await store.listUsers(bounds);
  return c.json({ data: users, error: null, meta: { total, ...bounds } });
});

app.post("/api/v1/users", zValidator("json", UserInput, reject), async (c) => {
  const user = await store.createUser(c.req.valid("json"));
  if (user === null) return c.json({ data: null, error: "email is already taken" }, 409);
  c.header("Location", `/api/v1/users/${user.id}`);
  return sendRecord(c, user, 201);
});

app.post("/api/v1/orders", zValidator("json", OrderInput, reject), async (c) => {
  const key = c.req.header("idempotency-key");
  const input = c.req.valid("json");
  const { record, replayed } = await store.placeOrder(input, c.get("token").hash, key);
  if (record === null) return c.json({ data: null, error: "order rejected" }, 422);
  if (replayed) c.header("Idempotent-Replayed", "true");
  c.header("Location", `/api/v1/orders/${record.id}`);
  return sendRecord(c, record, 201);
});

Bun.serve({
  hostname: "127.0.0.1",
  port: Number(Bun.env["PORT"]),
  development: false,
  fetch: app.fetch,
});
