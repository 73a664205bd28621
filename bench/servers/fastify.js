/** Fastify on Node: JSON Schema for requests and responses (ajv, fast-json-stringify), pino for the log. */
import { randomUUID } from "node:crypto";
import createApp, { LogController } from "fastify";
import { z } from "zod";
import { log_enabled, log_output } from "./log.js";
import { OrderInput, UserInput } from "./schemas.js";
import { openStore } from "./store.js";

const store = await openStore();

/** ajv has `format`, so the pattern that zod writes for an email would be checked twice. */
function jsonSchema(schema) {
  return z.toJSONSchema(schema, {
    target: "draft-7",
    override({ jsonSchema }) {
      if (jsonSchema.format !== undefined) delete jsonSchema.pattern;
    },
  });
}

const user_input = jsonSchema(UserInput);
const order_input = jsonSchema(OrderInput);
const integer = { type: "integer" };
const string = { type: "string" };
const page_query = {
  type: "object",
  additionalProperties: false,
  properties: {
    limit: { type: "integer", minimum: 1, maximum: 1000, default: 50 },
    offset: { type: "integer", minimum: 0, default: 0 },
  },
};

/** With the schema of a record, Fastify serializes faster than `JSON.stringify`. */
function recordOf(input, more = {}) {
  const own = { id: integer, ...input.properties, ...more };
  const common = { version: integer, created_at: string, updated_at: string };
  return { type: "object", properties: { ...own, ...common } };
}

function envelopeOf(data, more = {}) {
  return { type: "object", properties: { data, error: { type: "null" }, ...more } };
}

const user_record = recordOf(user_input);
const user_response = envelopeOf(user_record);
const order_response = envelopeOf(recordOf(order_input, { total: integer, status: string }));
const meta = { type: "object", properties: { total: integer, limit: integer, offset: integer } };
const page_response = envelopeOf({ type: "array", items: user_record }, { meta });

// Fastify's own two lines per request would be one more than the others write.
const app = createApp({
  logger: log_enabled ? { base: null, stream: log_output } : false,
  logController: new LogController({ disableRequestLogging: true }),
  bodyLimit: 65_536,
  genReqId: (request) => request.headers["x-request-id"] ?? randomUUID(),
  ajv: { customOptions: { removeAdditional: false } },
});

function reject(reply, status, error) {
  return reply.code(status).send({ data: null, error });
}

function sendRecord(request, reply, row) {
  const etag = `"${row.version}"`;
  reply.header("etag", etag).header("cache-control", "private, no-cache");
  if (request.headers["if-none-match"] === etag) return reply.code(304).send();
  return reply.send({ data: row, error: null });
}

app.decorateRequest("token", null);
app.addHook("onRequest", async (request, reply) => {
  reply.header("x-request-id", request.id);
  const [, credentials] = /^Bearer +(\S+) *$/i.exec(request.headers.authorization ?? "") ?? [];
  request.token = credentials === undefined ? null : await store.authenticate(credentials);
  if (request.token === null) return reject(reply, 401, "unauthorised");
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
  reject(reply, error.statusCode ?? 500, error.validation ? error.message : "internal error"),
);

const get_schema = {
  params: { type: "object", properties: { id: { type: "integer", minimum: 1 } } },
  response: { 200: user_response },
};
app.get("/api/v1/users/:id", { schema: get_schema }, async (request, reply) => {
  const user = await store.getUser(request.params.id);
  return user === null ? reject(reply, 404, "user not found") : sendRecord(request, reply, user);
});

const list_schema = { querystring: page_query, response: { 200: page_response } };
app.get("/api/v1/users", { schema: list_schema }, async (request) => {
  const { users, total } = await store.listUsers(request.query);
  return { data: users, error: null, meta: { total, ...request.query } };
});

const user_schema = { body: user_input, response: { 201: user_response } };
app.post("/api/v1/users", { schema: user_schema }, async (request, reply) => {
  const user = await store.createUser(request.body);
  if (user === null) return reject(reply, 409, "email is already taken");
  reply.code(201).header("location", `/api/v1/users/${user.id}`);
  return sendRecord(request, reply, user);
});

const order_schema = { body: order_input, response: { 201: order_response } };
app.post("/api/v1/orders", { schema: order_schema }, async (request, reply) => {
  const key = request.headers["idempotency-key"];
  const { record, replayed } = await store.placeOrder(request.body, request.token.hash, key);
  if (record === null) return reject(reply, 422, "order rejected");
  if (replayed) reply.header("idempotent-replayed", "true");
  reply.code(201).header("location", `/api/v1/orders/${record.id}`);
  return sendRecord(request, reply, record);
});

await app.listen({ host: "127.0.0.1", port: Number(process.env.PORT) });
