/** SQLite databases of the service's own schema, filled with SQL. They are kept in `data/` until the schema changes. */
import { Database } from "bun:sqlite";
import { copyFileSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync } from "node:fs";
import { output } from "./process.ts";

export const data_directory = `${import.meta.dir}/data`;
export const binary = `${import.meta.dir}/../dist/user-api`;

/** Rows per transaction: few enough to stay in SQLite's cache. */
const BATCH = 100_000;

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
export function createToken(database_url: string, name: string): string {
  return output(binary, "token", "create", name, "--database-url", database_url);
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

const numbers = `
  with recursive n (i) as (select $first union all select i + 1 from n where i < $last)
`;
const now = "2026-01-01T00:00:00.000Z";

// With leading zeros, so that the index of emails is filled in order.
const insert_users = `${numbers}
  insert into users (email, email_key, name, metadata, version, created_at, updated_at)
  select printf('user%09d@example.com', i), printf('user%09d@example.com', i),
    printf('User %d', i), '{"plan":"basic"}', 1, '${now}', '${now}'
  from n
`;
// 7919 is prime, so every user gets an order before one gets a second.
const insert_orders = `${numbers}
  insert into orders (user_id, user_position, currency, items, total, status, metadata, version,
    created_at, updated_at)
  select 1 + i * 7919 % $users, 1 + (i - 1) / $users, 'EUR',
    '[{"sku":"tea-01","quantity":2,"unit_price":1999}]', 3998,
    iif(i % 10 < 7, 'delivered', iif(i % 10 = 7, 'paid', 'pending')), '{}', 1, '${now}', '${now}'
  from n
`;
// The triggers count changes of status, but not new orders, so this counts them as an import does.
const count_orders = `
  insert into buckets (list, level, bucket, ids)
  select status, $level, (id - 1) >> $shift, count(*)
  from orders
  where status <> 'pending'
  group by 1, 3
  union all
  select 'pending', $level, (id - 1) >> $shift, count(*)
  from orders
  where status <> 'pending'
  group by 3
`;
/** For each level of the buckets, how many low bits of an id it ignores. */
const shifts = [6, 12, 18, 62];

function fill(path: string, users: number, orders: number): void {
  using db = new Database(path, { strict: true });
  // An unfinished seed is never renamed, so nothing has to survive a failure.
  db.run("pragma journal_mode = off");
  db.run("pragma synchronous = off");
  db.run("pragma cache_size = -1000000");
  function insert(sql: string, count: number, fields: Record<string, number>): void {
    using statement = db.prepare(sql);
    for (let first = 1; first <= count; first += BATCH) {
      statement.run({ first, last: Math.min(first + BATCH - 1, count), ...fields });
    }
  }
  insert(insert_users, users, {});
  insert(insert_orders, orders, { users });
  using count = db.prepare(count_orders);
  for (const [level, shift] of shifts.entries()) count.run({ level, shift });
  db.run("pragma journal_mode = wal");
}

/** Creates a seed, unless `data/` has it. */
export function seed(users: number, orders: number): Seed {
  mkdirSync(data_directory, { recursive: true });
  const draft = `${data_directory}/draft.db`;
  remove(draft);
  createToken(draft, "draft");
  const name = `seed-${users}-${orders}`;
  const path = `${data_directory}/${name}-${schemaOf(draft)}.db`;
  if (!existsSync(path)) {
    for (const file of readdirSync(data_directory)) {
      if (file.startsWith(`${name}-`)) rmSync(`${data_directory}/${file}`);
    }
    const started_ms = performance.now();
    fill(draft, users, orders);
    renameSync(draft, path);
    const seconds = ((performance.now() - started_ms) / 1000).toFixed(1);
    console.log(`seeded ${users} users and ${orders} orders in ${seconds} s`);
  }
  remove(draft);
  const token = createToken(path, `bench ${Date.now()}`);
  checkpoint(path);
  return { path, token, users, orders };
}

/** Adds tokens to a seed. */
export function createTokens({ path }: Seed, count: number): string[] {
  const stamp = Date.now();
  const tokens = Array.from({ length: count }, (_, i) => createToken(path, `bench ${stamp} ${i}`));
  checkpoint(path);
  return tokens;
}

/** Copies a seed for one server. Other servers get no triggers: only the service needs what these maintain. */
export function copyOf(seed: Seed, name: string, triggers: boolean): string {
  const path = `${data_directory}/run-${name}.db`;
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
  for (const file of readdirSync(data_directory)) {
    if (!/^(?:seed|results)/i.test(file)) rmSync(`${data_directory}/${file}`, { recursive: true });
  }
}
