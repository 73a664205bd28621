// Keeps a copy of all users and orders in step: see docs/changes.md. It needs client.ts.
import { mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { ApiError, type Change, Client, type Order, type User } from "./client.ts";

const api = new Client("http://127.0.0.1:3000", process.env["TOKEN"] ?? "");
const fileOf = (table: string, id: number) => `copy/${table}/${id}.json`;
const read = (path: string) => readFile(path, "utf8").catch(() => "");

/** Replaces the whole file, also if the program is killed meanwhile. */
async function write(path: string, text: string): Promise<void> {
  await writeFile("copy/new", text);
  await rename("copy/new", path);
}

async function store(table: string, record: User | Order): Promise<void> {
  const path = fileOf(table, record.id);
  const text = await read(path);
  if (text === "" || JSON.parse(text).version < record.version)
    await write(path, JSON.stringify(record));
}

/** @returns a position before which the copy has everything */
async function synchronize(): Promise<string> {
  const position = await api.position();
  await rm("copy", { recursive: true, force: true });
  for (const table of ["users", "orders"]) await mkdir(`copy/${table}`, { recursive: true });
  for await (const user of api.users()) await store("users", user);
  for await (const order of api.orders()) await store("orders", order);
  await write("copy/position", position);
  return position;
}

async function apply({ type, record_id, record = null, position }: Change): Promise<void> {
  const table = type.startsWith("user") ? "users" : "orders";
  if (type === "user.deleted" || record === null)
    await rm(fileOf(table, record_id), { force: true });
  if (record !== null) await store(table, record);
  await write("copy/position", position);
}

for (;;) {
  try {
    const position = (await read("copy/position")) || (await synchronize());
    for await (const change of api.changes(position)) await apply(change);
  } catch (error) {
    if (!(error instanceof ApiError && error.status === 410)) throw error;
    await synchronize();
  }
}
