/**
 * Databases of the service's own schema, filled by SQL alone. They are kept in `data/` and made again
 * when the schema changes.
 */
import { Database } from "bun:sqlite";
import { copyFileSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync } from "node:fs";

export const data_folder = `${import.meta.dir}/data`;
export const binary = `${import.meta.dir}/../dist/user-api`;

/** Rows a transaction: few enough to stay in SQLite's cache. */
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

/** Makes a token, and with it a database that is missing: the service's own migrations run. */
function createToken(path: string, name: string): string {
  const made = Bun.spawnSync([binary, "token", "create", name, "--database-url", path]);
  if (!made.success) throw new Error(`cannot make a token in ${path}: ${made.stderr}`);
  return made.stdout.toString().trim();
}

/** Brings all into the file itself, so that it can be copied. */
function settle(path: string): void {
  using db = new Database(path);
  db.run("pragma wal_checkpoint(truncate)");
}

/** Names the schema: a seed of another one is of no use. */
function schemaOf(path: string): string {
  using db = new Database(path);
  const rows = db.query("select sql from sqlite_schema order by name").values();
  return Bun.hash(JSON.stringify(rows)).toString(36);
}

const numbers = `
  with recursive n (i) as (select $first union all select i + 1 from n where i < $last)
`;
const now = "2026-01-01T00:00:00.000Z";

// Zeros in front, so that the index of emails is filled in its order, too.
const insert_users = `${numbers}
  insert into users (email, email_key, name, metadata, version, created_at, updated_at)
  select printf('user%09d@example.com', i), printf('user%09d@example.com', i),
    printf('User %d', i), '{"plan":"basic"}', 1, '${now}', '${now}'
  from n
`;
// 7919 is prime, so that every user has an order before one has two.
const insert_orders = `${numbers}
  insert into orders (user_id, user_position, currency, items, total, status, metadata, version,
    created_at, updated_at)
  select 1 + i * 7919 % $users, 1 + (i - 1) / $users, 'EUR',
    '[{"sku":"tea-01","quantity":2,"unit_price":1999}]', 3998,
    iif(i % 10 < 7, 'delivered', iif(i % 10 = 7, 'paid', 'pending')), '{}', 1, '${now}', '${now}'
  from n
`;
// As an import counts them: the service's triggers count what changes, not what is new.
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
/** Of each level of the buckets: how many bits of an id it leaves out. */
const shifts = [6, 12, 18, 62];

function fill(path: string, users: number, orders: number): void {
  using db = new Database(path, { strict: true });
  // Nothing here outlives a failure: an unfinished seed is never renamed into place.
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

/** Takes a seed from `data/`, or makes it. */
export function seed(users: number, orders: number): Seed {
  mkdirSync(data_folder, { recursive: true });
  const draft = `${data_folder}/draft.db`;
  remove(draft);
  createToken(draft, "draft");
  const kind = `seed-${users}-${orders}`;
  const path = `${data_folder}/${kind}-${schemaOf(draft)}.db`;
  if (!existsSync(path)) {
    for (const file of readdirSync(data_folder)) {
      if (file.startsWith(`${kind}-`)) rmSync(`${data_folder}/${file}`);
    }
    const started_ms = performance.now();
    fill(draft, users, orders);
    renameSync(draft, path);
    const duration_s = ((performance.now() - started_ms) / 1000).toFixed(1);
    console.log(`seeded ${users} users and ${orders} orders in ${duration_s} s`);
  }
  remove(draft);
  const token = createToken(path, `bench ${Date.now()}`);
  settle(path);
  return { path, token, users, orders };
}

/** More tokens for a seed, as many clients have. */
export function createTokens({ path }: Seed, count: number): string[] {
  const stamp = Date.now();
  const tokens = Array.from({ length: count }, (_, i) => createToken(path, `bench ${stamp} ${i}`));
  settle(path);
  return tokens;
}

/** A copy for one server, without the triggers if it is not ours: what they keep, only we need. */
export function copyOf(seed: Seed, name: string, triggers: boolean): string {
  const path = `${data_folder}/run-${name}.db`;
  remove(path);
  copyFileSync(seed.path, path);
  if (triggers) return path;
  using db = new Database(path);
  const names = db.query("select name from sqlite_schema where type = 'trigger'").values();
  for (const [trigger] of names) db.run(`drop trigger "${trigger}"`);
  return path;
}
