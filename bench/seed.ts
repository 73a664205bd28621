/** Databases of the service. Those of SQLite are kept in `data/` until the schema changes. */
import { Database } from "bun:sqlite";
import {
  closeSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  renameSync,
  rmSync,
  writeSync,
} from "node:fs";
import { output } from "./process.ts";

export const dataDirectory = `${import.meta.dir}/data`;
export const binary = `${import.meta.dir}/../dist/user-api`;

export interface Seed {
  readonly path: string;
  readonly token: string;
  readonly users: number;
  readonly orders: number;
}

function remove(path: string): void {
  for (const suffix of ["", "-wal", "-shm", "-serving"]) rmSync(path + suffix, { force: true });
}

/** Creates a token, and the schema if the database is empty. */
export function createToken(databaseUrl: string, program = binary): string {
  const name = `bench ${Date.now()}`;
  return output(program, "token", "create", name, "--database-url", databaseUrl);
}

/** The fractions of its multiples are spread evenly. */
const GOLDEN_RATIO = (1 + Math.sqrt(5)) / 2;
const statuses = ["delivered", "pending", "delivered", "paid", "delivered", "shipped", "canceled"];

function userOf(id: number): object {
  const metadata = { plan: ["free", "team", "business"][id % 3] };
  const email = `ada.brown.${id}@example.com`;
  return { email, reference: `C-${id}`, name: "Ada Brown", metadata };
}

/** Some users order more than others. */
function orderOf(id: number, users: number) {
  const items = Array.from({ length: 1 + (id % 3) }, (_, at) => {
    const product = { sku: `tea-0${at}`, name: "Green tea, 250 g", unit_price: 1250 };
    return { ...product, quantity: 1 + ((id + at) % 4) };
  });
  const order = { currency: "EUR", reference: `2026-${id}`, items, status: statuses[id % 7] };
  return { user_id: 1 + Math.floor(((id * GOLDEN_RATIO) % 1) ** 2 * users), ...order };
}

/** Imports records, whose ids begin with 1. */
function importAll(
  program: string,
  databaseUrl: string,
  table: "users" | "orders",
  count: number,
  recordOf: (id: number) => object,
): void {
  const path = `${dataDirectory}/draft.ndjson`;
  const descriptor = openSync(path, "w");
  for (let first = 1; first <= count; first += 10_000) {
    const length = Math.min(10_000, count - first + 1);
    const lines = Array.from({ length }, (_, at) => `${JSON.stringify(recordOf(first + at))}\n`);
    writeSync(descriptor, lines.join(""));
  }
  closeSync(descriptor);
  if (count > 0) output(program, "import", table, path, "--database-url", databaseUrl);
  rmSync(path);
}

/** Stores users and orders in an empty database. */
export function fill(databaseUrl: string, users: number, orders: number): void {
  const startedMs = performance.now();
  importAll(binary, databaseUrl, "users", users, userOf);
  importAll(binary, databaseUrl, "orders", orders, (id) => orderOf(id, users));
  const seconds = ((performance.now() - startedMs) / 1000).toFixed(1);
  console.log(`seeded ${users} users and ${orders} orders in ${seconds} s`);
}

/** Moves everything into the file itself, so that it can be copied. */
function checkpoint(path: string): void {
  using db = new Database(path);
  db.run("pragma wal_checkpoint(truncate)");
}

/** @returns a hash of the schema: a seed of an older schema is useless */
function schemaOf(path: string): string {
  using db = new Database(path);
  const rows = db.query("select sql from sqlite_schema order by name").values();
  return Bun.hash(JSON.stringify(rows)).toString(36);
}

/** Creates a seed, unless `data/` has it. */
export function seed(users: number, orders: number): Seed {
  mkdirSync(dataDirectory, { recursive: true });
  const draft = `${dataDirectory}/draft.db`;
  remove(draft);
  createToken(draft);
  const name = `seed-${users}-${orders}`;
  const path = `${dataDirectory}/${name}-${schemaOf(draft)}.db`;
  if (!existsSync(path)) {
    for (const file of readdirSync(dataDirectory)) {
      if (file.startsWith(`${name}-`)) rmSync(`${dataDirectory}/${file}`);
    }
    fill(draft, users, orders);
    renameSync(draft, path);
  }
  remove(draft);
  const token = createToken(path);
  checkpoint(path);
  return { path, token, users, orders };
}

/** A seed by a version of the program. Records are as in an export, whose form is stable, and without references. */
export function seedBy(program: string, name: string, users: number, orders: number): Seed {
  const path = `${dataDirectory}/filled-${name}.db`;
  remove(path);
  const createdAt = "2026-11-01T00:00:00.000Z";
  const rest = { version: 1, created_at: createdAt, updated_at: createdAt, reference: undefined };
  importAll(program, path, "users", users, (id) => ({ ...userOf(id), ...rest, id }));
  importAll(program, path, "orders", orders, (id) => {
    const order = orderOf(id, users);
    const total = order.items.reduce((sum, item) => sum + item.quantity * item.unit_price, 0);
    return { ...order, ...rest, id, total, metadata: {} };
  });
  const token = createToken(path, program);
  checkpoint(path);
  return { path, token, users, orders };
}

/** Copies a seed for one server. Other servers get no triggers: only the service needs what these maintain. */
export function copyOf(seed: Seed, name: string, triggers: boolean): string {
  const path = `${dataDirectory}/run-${name}.db`;
  remove(path);
  copyFileSync(seed.path, path);
  if (triggers) return path;
  using db = new Database(path);
  const names = db.query("select name from sqlite_schema where type = 'trigger'").values();
  for (const [trigger] of names) db.run(`drop trigger "${trigger}"`);
  return path;
}

/** Removes copies and directories of earlier runs. Seeds stay. */
export function removeCopies(): void {
  for (const file of readdirSync(dataDirectory)) {
    if (!/^(?:seed|results)/i.test(file)) rmSync(`${dataDirectory}/${file}`, { recursive: true });
  }
}
