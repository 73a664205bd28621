/** Hono on Bun with bun:sqlite, put together from Hono's own middleware as its manual shows. */
import { Database } from "bun:sqlite";
import { zValidator } from "@hono/zod-validator";
import { type Context, Hono } from "hono";
import { bearerAuth } from "hono/bearer-auth";
import { HTTPException } from "hono/http-exception";
import { requestId } from "hono/request-id";
import { routePath } from "hono/route";
import { createOutput, createRequestLog } from "./output.js";
import { OrderInput, UserId, UserInput } from "./schemas.js";
import { configure, createStore } from "./store.js";

const db = new Database(Bun.env["DATABASE"], { readwrite: true, strict: true });
configure(db, String(Bun.env["DURABILITY"]));
const store = createStore(db, (text) => new Bun.CryptoHasher("sha256").update(text).digest("hex"));
const logRequest = createRequestLog(createOutput(Bun.env["LOG"] === "on"));

interface Env {
  Variables: { token: { name: string; hash: string }; requestId: string };
}

function record(c: Context<Env>, row: { version: number }, status: 200 | 201 = 200) {
  const etag = `"${row.version}"`;
  c.header("ETag", etag);
  c.header("Cache-Control", "private, no-cache");
  if (c.req.header("if-none-match") === etag) return c.body(null, 304);
  return c.json({ data: row, error: null }, status);
}

/** zValidator's own answer has another shape than the envelope. */
function refuse(result: { success: boolean; error?: { message: string } }, c: Context) {
  if (result.success) return;
  return c.json({ data: null, error: `Validation failed: ${result.error?.message}` }, 400);
}

const app = new Hono<Env>();
app.use(requestId());
app.use(async (c, next) => {
  const started_ms = performance.now();
  await next();
  const token = c.get("token")?.name;
  const { method } = c.req;
  logRequest(method, routePath(c, -1), c.res.status, started_ms, c.get("requestId"), token);
});
app.use(
  "/api/*",
  bearerAuth<Env>({
    verifyToken: (credentials, c) => {
      const token = store.authenticate(credentials);
      if (token !== null) c.set("token", token);
      return token !== null;
    },
  }),
);
app.onError((error, c) => {
  const status = error instanceof HTTPException ? error.status : 500;
  return c.json({ data: null, error: status === 500 ? "internal error" : "unauthorised" }, status);
});

app.get("/api/v1/users/:id", zValidator("param", UserId, refuse), (c) => {
  const user = store.getUser(c.req.valid("param").id);
  if (user === null) return c.json({ data: null, error: "user not found" }, 404);
  return record(c, user);
});

app.post("/api/v1/users", zValidator("json", UserInput, refuse), (c) => {
  const user = store.createUser(c.req.valid("json"));
  if (user === null) return c.json({ data: null, error: "email is already taken" }, 409);
  c.header("Location", `/api/v1/users/${user.id}`);
  return record(c, user, 201);
});

app.post("/api/v1/orders", zValidator("json", OrderInput, refuse), (c) => {
  const key = c.req.header("idempotency-key");
  const { record: order, replayed } = store.placeOrder(
    c.req.valid("json"),
    c.get("token").hash,
    key,
  );
  if (order === null) return c.json({ data: null, error: "order refused" }, 422);
  if (replayed) c.header("Idempotent-Replayed", "true");
  c.header("Location", `/api/v1/orders/${order.id}`);
  return record(c, order, 201);
});

Bun.serve({
  hostname: "127.0.0.1",
  port: Number(Bun.env["PORT"]),
  development: false,
  fetch: app.fetch,
});
