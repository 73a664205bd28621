// Creates a user and an order once, reads all users, edits each, and counts: see docs/clients.md.
const base = "http://127.0.0.1:3000";
const maxAttempts = 6;

/** Reads the body as well: the connection can break in the middle of it. */
async function send(path: string, init: object) {
  const signal = AbortSignal.timeout(90_000);
  const response = await fetch(base + path, { ...init, signal });
  const { ok, status, headers } = response;
  return { ok, status, headers, text: await response.text() };
}

/** Sends a request that is safe to repeat, until there is a complete response. */
async function request(method: string, path: string, body?: object, more: object = {}) {
  const authorization = `Bearer ${process.env["TOKEN"]}`;
  const headers = { authorization, "content-type": "application/json", ...more };
  const init = { method, headers, ...(body && { body: JSON.stringify(body) }) };
  for (let attempt = 1; ; attempt += 1) {
    const response = await send(path, init).catch((error) => {
      if (attempt === maxAttempts) throw error;
    });
    if (response && (attempt === maxAttempts || ![429, 502, 503, 504].includes(response.status))) {
      const { ok, status, text } = response;
      if (!ok && status !== 412) throw new Error(`${method} ${path}: ${status} ${text}`);
      return { ok, headers: response.headers, data: JSON.parse(text).data };
    }
    const waitS = Number(response?.headers.get("retry-after") ?? 1) + Math.random();
    await new Promise((resolve) => setTimeout(resolve, waitS * 1000));
  }
}

/** Creates a record, or returns the one that an earlier attempt with this key has created. */
async function create(list: string, record: object, key: string) {
  return (await request("POST", list, record, { "idempotency-key": key })).data;
}

/** Reads all records of a list. */
async function* readAll(list: string) {
  for (let path: string | undefined = `${list}?limit=50&after=0`; path; ) {
    const { data, headers } = await request("GET", path);
    yield* data;
    path = /<([^>]*)>; rel="next"/.exec(headers.get("link") ?? "")?.[1];
  }
}

/**
 * Edits a record once, without overwriting the change of another client. With the key, an attempt whose response was lost
 * is not a 412 when it is repeated.
 */
async function edit(path: string, change: (record: any) => object) {
  for (;;) {
    const { data, headers } = await request("GET", path);
    const once = { "if-match": headers.get("etag"), "idempotency-key": crypto.randomUUID() };
    if ((await request("PATCH", path, change(data), once)).ok) return;
  }
}

const user = await create("/api/v1/users", { email: "dan@example.com" }, "import-2026-11-22-1");
const items = [{ sku: "tea-01", quantity: 2, unit_price: 1999 }];
const order = { user_id: user.id, currency: "EUR", items };
await create("/api/v1/orders", order, "import-2026-11-22-2");
for await (const { id } of readAll("/api/v1/users")) {
  await edit(`/api/v1/users/${id}`, () => ({ metadata: { seen: "yes" } }));
}
for (let n = 0; n < 3; n += 1) {
  await edit(`/api/v1/users/${user.id}`, ({ metadata }) => ({
    metadata: { count: `${Number(metadata.count ?? 0) + 1}` },
  }));
}
