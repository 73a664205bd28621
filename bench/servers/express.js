/** Express on Node with zod. */
import { randomUUID } from "node:crypto";
import express from "express";
import { logRequest } from "./log.js";
import { OrderInput, PageQuery, UserId, UserInput } from "./schemas.js";
import { openStore } from "./store.js";

const store = await openStore();

function reject(res, status, error) {
  res.status(status).json({ data: null, error });
}

function sendRecord(req, res, row, status = 200) {
  const etag = `"${row.version}"`;
  res.set("ETag", etag);
  res.set("Cache-Control", "private, no-cache");
  if (req.headers["if-none-match"] === etag) return res.status(304).end();
  return res.status(status).json({ data: row, error: null });
}

/** The validated value; `undefined` if the request was rejected. */
function check(schema, value, res) {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  reject(res, 400, `Validation failed: ${result.error.message}`);
}

const app = express();
app.disable("x-powered-by");
app.disable("etag");

app.use((req, res, next) => {
  const started_ms = performance.now();
  const request_id = req.headers["x-request-id"] ?? randomUUID();
  res.set("X-Request-Id", request_id);
  res.on("finish", () => {
    const { method, route, token } = req;
    logRequest(method, route?.path, res.statusCode, started_ms, request_id, token?.name);
  });
  next();
});
app.use(async (req, res, next) => {
  const [, credentials] = /^Bearer +(\S+) *$/i.exec(req.headers.authorization ?? "") ?? [];
  req.token = credentials === undefined ? null : await store.authenticate(credentials);
  if (req.token === null) reject(res, 401, "unauthorised");
  else next();
});
app.use(express.json({ limit: 65_536 }));

app.get("/api/v1/users/:id", async (req, res) => {
  const params = check(UserId, req.params, res);
  if (params === undefined) return;
  const user = await store.getUser(params.id);
  if (user === null) reject(res, 404, "user not found");
  else sendRecord(req, res, user);
});

app.get("/api/v1/users", async (req, res) => {
  const bounds = check(PageQuery, req.query, res);
  if (bounds === undefined) return;
  const { users, total } = await store.listUsers(bounds);
  res.json({ data: users, error: null, meta: { total, ...bounds } });
});

app.post("/api/v1/users", async (req, res) => {
  const input = check(UserInput, req.body, res);
  if (input === undefined) return;
  const user = await store.createUser(input);
  if (user === null) return reject(res, 409, "email is already taken");
  res.set("Location", `/api/v1/users/${user.id}`);
  sendRecord(req, res, user, 201);
});

app.post("/api/v1/orders", async (req, res) => {
  const input = check(OrderInput, req.body, res);
  if (input === undefined) return;
  const key = req.headers["idempotency-key"];
  const { record, replayed } = await store.placeOrder(input, req.token.hash, key);
  if (record === null) return reject(res, 422, "order rejected");
  if (replayed) res.set("Idempotent-Replayed", "true");
  res.set("Location", `/api/v1/orders/${record.id}`);
  sendRecord(req, res, record, 201);
});

app.listen(Number(process.env.PORT), "127.0.0.1");
