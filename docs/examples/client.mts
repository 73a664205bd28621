// Creates a user once, reads all users, and edits each: see docs/clients.md.
const base = "http://127.0.0.1:3000";
const maxAttempts = 6;

/** Sends a request that is safe to repeat, until the server has time for it. */
async function request(method: string, path: string, body?: object, more: object = {}) {
  const authorization = `Bearer ${process.env["TOKEN"]}`;
  const headers = { authorization, "content-type": "application/json", ...more };
  const init = { method, headers, ...(body && { body: JSON.stringify(body) }) };
  for (let attempt = 1; ; attempt += 1) {
    const response = await fetch(base + path, init).catch((error) => {
      if (attempt === maxAttempts) throw error;
    });
    if (response && (attempt === maxAttempts || ![429, 502, 503, 504].includes(response.status))) {
      if (response.ok || response.status === 412) return response;
      throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
    }
    const waitS = Number(response?.headers.get("retry-after") ?? 1) + Math.random();
    await new Promise((resolve) => setTimeout(resolve, waitS * 1000));
  }
}

/** Reads all records of a list. */
async function* readAll(list: string) {
  for (let path: string | undefined = `${list}?limit=50&after=0`; path; ) {
    const response = await request("GET", path);
    yield* ((await response.json()) as { data: any[] }).data;
    path = /<([^>]*)>; rel="next"/.exec(response.headers.get("link") ?? "")?.[1];
  }
}

/** Edits a record without overwriting the change of another client. */
async function edit(path: string, change: (record: any) => object) {
  for (;;) {
    const found = await request("GET", path);
    const { data } = (await found.json()) as { data: any };
    const match = { "if-match": found.headers.get("etag") };
    const response = await request("PATCH", path, change(data), match);
    if (response.ok) return response;
  }
}

const key = { "idempotency-key": "import-2026-11-22-2" };
await request("POST", "/api/v1/users", { email: "fay@example.com" }, key);
for await (const user of readAll("/api/v1/users")) {
  await edit(`/api/v1/users/${user.id}`, () => ({ metadata: { seen: "yes" } }));
}
