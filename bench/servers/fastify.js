/** Fastify on Node with better-sqlite3: JSON Schema in and out (ajv, fast-json-stringify), pino. */
import { hash, randomUUID } from "node:crypto";
import createApp, { LogController } from "fastify";
import { createOutput } from "./output.js";
import { configure, createStore } from "./store.js";

// One version is made for the machine's own Node, the other for the current one.
const { default: Database } = await import(process.env.SQLITE);
const db = new Database(process.env.DATABASE, { fileMustExist: true });
configure(db, process.env.DURABILITY);
const store = createStore(db, (text) => hash("sha256", text, "hex"));

const metadata = {
  type: "object",
  maxProperties: 50,
  propertyNames: { minLength: 1, maxLength: 40 },
  additionalProperties: { type: "string", maxLength: 500 },
};
const item = {
  type: "object",
  additionalProperties: false,
  required: ["sku", "quantity", "unit_price"],
  properties: {
    sku: { type: "string", minLength: 1, maxLength: 64 },
    name: { type: "string", minLength: 1, maxLength: 200 },
    quantity: { type: "integer", minimum: 1, maximum: 1_000_000 },
    unit_price: { type: "integer", minimum: 0 },
  },
};
const id = { type: "integer", minimum: 1 };
const user_fields = {
  email: { type: "string", format: "email", maxLength: 254 },
  name: { type: ["string", "null"], minLength: 1, maxLength: 200 },
  metadata,
};
const order_fields = {
  user_id: id,
  currency: { type: "string", pattern: "^[A-Z]{3}$" },
  items: { type: "array", minItems: 1, maxItems: 100, items: item },
  metadata,
};
const kept = {
  version: { type: "integer" },
  created_at: { type: "string" },
  updated_at: { type: "string" },
};

function input(required, properties) {
  return { type: "object", additionalProperties: false, required, properties };
}

/** With the shape of its answers Fastify serialises faster than `JSON.stringify` does. */
function answers(...all) {
  const properties = Object.assign({ id }, ...all, kept);
  const data = { type: "object", properties };
  const body = { type: "object", properties: { data, error: { type: "null" } } };
  return { 200: body, 201: body };
}

const User = answers(user_fields);
const Order = answers(order_fields, { total: { type: "integer" }, status: { type: "string" } });

// Fastify's own two lines a request would be one more than the others write.
const app = createApp({
  logger: process.env.LOG === "on" ? { base: null, stream: createOutput(true) } : false,
  logController: new LogController({ disableRequestLogging: true }),
  bodyLimit: 65_536,
  genReqId: (request) => request.headers["x-request-id"] ?? randomUUID(),
  ajv: { customOptions: { removeAdditional: false } },
});

function refuse(reply, status, error) {
  return reply.code(status).send({ data: null, error });
}

function sendRecord(request, reply, row) {
  const etag = `"${row.version}"`;
  reply.header("etag", etag).header("cache-control", "private, no-cache");
  if (request.headers["if-none-match"] === etag) return reply.code(304).send();
  return reply.send({ data: row, error: null });
}

app.decorateRequest("token", null);
app.addHook("onRequest", (request, reply, done) => {
  reply.header("x-request-id", request.id);
  const [, credentials] = /^Bearer +(\S+) *$/i.exec(request.headers.authorization ?? "") ?? [];
  request.token = credentials === undefined ? null : store.authenticate(credentials);
  if (request.token === null) refuse(reply, 401, "unauthorised");
  else done();
});
app.addHook("onResponse", (request, reply, done) => {
  const fields = {
    event: "request",
    method: request.method,
    route: request.routeOptions.url,
    status: reply.statusCode,
    duration_ms: reply.elapsedTime,
    request_id: request.id,
    token: request.token?.name,
  };
  app.log.info(fields);
  done();
});
app.setErrorHandler((error, _request, reply) =>
  refuse(reply, error.statusCode ?? 500, error.validation ? error.message : "internal error"),
);

const params = { type: "object", properties: { id } };

app.get("/api/v1/users/:id", { schema: { params, response: User } }, (request, reply) => {
  const user = store.getUser(request.params.id);
  return user === null ? refuse(reply, 404, "user not found") : sendRecord(request, reply, user);
});

const user_schema = { body: input(["email"], user_fields), response: User };
app.post("/api/v1/users", { schema: user_schema }, (request, reply) => {
  const user = store.createUser(request.body);
  if (user === null) return refuse(reply, 409, "email is already taken");
  reply.code(201).header("location", `/api/v1/users/${user.id}`);
  return sendRecord(request, reply, user);
});

const order_schema = {
  body: input(["user_id", "currency", "items"], order_fields),
  response: Order,
};
app.post("/api/v1/orders", { schema: order_schema }, (request, reply) => {
  const key = request.headers["idempotency-key"];
  const { record, replayed } = store.placeOrder(request.body, request.token.hash, key);
  if (record === null) return refuse(reply, 422, "order refused");
  if (replayed) reply.header("idempotent-replayed", "true");
  reply.code(201).header("location", `/api/v1/orders/${record.id}`);
  return sendRecord(request, reply, record);
});

await app.listen({ host: "127.0.0.1", port: Number(process.env.PORT) });
