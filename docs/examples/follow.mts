// Keeps a copy of all users and orders in step: see docs/changes.md.
import { mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";

const base = "http://127.0.0.1:3000";
const headers = { authorization: `Bearer ${process.env.TOKEN}` };

/** Reads the body as well: the connection can break in the middle of it. */
async function send(path: string) {
  const response = await fetch(base + path, { headers, signal: AbortSignal.timeout(90_000) });
  return { status: response.status, headers: response.headers, text: await response.text() };
}

/** Repeats the request until it succeeds or has a definite error. */
async function get(path: string): Promise<{ status: number; body: any; next: string }> {
  for (;;) {
    const response = await send(path).catch(() => null);
    if (response?.status === 200 || response?.status === 410) {
      const link = /<([^>]*)>; rel="next"/.exec(response.headers.get("link") ?? "");
      return { status: response.status, body: JSON.parse(response.text), next: link?.[1] ?? "" };
    }
    if (response !== null && ![429, 502, 503, 504].includes(response.status))
      throw new Error(`${path}: ${response.status} ${response.text}`);
    const seconds = Number(response?.headers.get("retry-after") ?? 1);
    await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  }
}

const fileOf = (table: string, id: number) => `copy/${table}/${id}.json`;

async function store(table: string, record: any): Promise<void> {
  const text = await readFile(fileOf(table, record.id), "utf8").catch(() => null);
  if (text !== null && JSON.parse(text).version >= record.version) return;
  await writeFile("copy/new", JSON.stringify(record));
  await rename("copy/new", fileOf(table, record.id));
}

async function savePosition(next: string): Promise<void> {
  await writeFile("copy/new", next);
  await rename("copy/new", "copy/next");
}

async function synchronize(): Promise<string> {
  await rm("copy", { recursive: true, force: true });
  const { last, feed } = (await get("/api/v1/changes?limit=1")).body.meta;
  for (const table of ["users", "orders"]) {
    await mkdir(`copy/${table}`, { recursive: true });
    for (let path = `/api/v1/${table}?after=0&limit=50`; path !== ""; ) {
      const { body, next } = await get(path);
      for (const record of body.data) await store(table, record);
      path = next;
    }
  }
  return `/api/v1/changes?after=${last}&feed=${feed}&limit=50&include=record&wait=50`;
}

async function apply({ type, record_id, record }: any): Promise<void> {
  const table = type.startsWith("user") ? "users" : "orders";
  if (type === "user.deleted" || record === null)
    await rm(fileOf(table, record_id), { force: true });
  if (record !== null) await store(table, record);
}

let position = await readFile("copy/next", "utf8").catch(() => "");
for (;;) {
  if (position === "") {
    position = await synchronize();
    await savePosition(position);
  }
  const { status, body, next } = await get(position);
  if (status === 410) {
    position = "";
    continue;
  }
  for (const change of body.data) await apply(change);
  position = next;
  await savePosition(position);
}
