// A page of a list or of an export begins at an entry of an index, so that it costs the same at any depth. No
// statement is prepared again at each execution.
import { Database } from "bun:sqlite";
import { afterAll, expect, spyOn, test } from "bun:test";
import { makePath, openDatabase } from "./open-database.ts";

const { path } = makePath();
const prepare = spyOn(Database.prototype, "prepare");
const store = await openDatabase(path);
const status = ["paid", "shipped"] as const;
const filters = [{}, { status: [status[0]] }, { status: [...status] }, { user_id: 1 }];
for (const filter of [...filters, { user_id: 1, status: [...status] }]) {
  const query = { limit: 1, offset: 0, ...filter };
  await store.orders.list(query);
  await store.orders.list({ ...query, created_from: "2026-11-20T18:57:03.120Z" });
}
await store.close();
const statements = prepare.mock.calls.map(([sql]) => sql);
prepare.mockRestore();
const db = new Database(path, { strict: true });
afterAll(() => db.close());

const ofIds = (table: string) =>
  `id >= $first and id <= $last: SEARCH ${table} USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)`;
const byStatus = "SEARCH orders USING INDEX orders_by_status (status=? AND rowid>? AND rowid<?)";
const byUser =
  "id >= $first and id <= $last: SEARCH orders USING INDEX orders_by_user (user_id=? AND id>? AND id<?)";

test("pages are read from an index without a sort when they begin after an id", () => {
  const pages = statements.filter((sql) => /limit \+\$limit|version % 64/.test(sql));
  const plans = new Set<string>();
  for (const sql of pages) {
    const steps = db.query<{ detail: string }, []>(`explain query plan ${sql}`).all();
    const [, conditions = ""] = /\bwhere ([^\n]*)/.exec(sql) ?? [];
    plans.add(`${conditions.trim()}: ${steps.map(({ detail }) => detail).join("; ")}`);
  }
  expect([...plans].sort()).toEqual([
    `+status in ('paid') and created_at >= +$from and created_at < +$to and ${ofIds("orders")}`,
    `+status in ('paid', 'shipped') and created_at >= +$from and created_at < +$to and ${ofIds("orders")}`,
    `created_at >= +$from and created_at < +$to and ${ofIds("orders")}`,
    `created_at >= +$from and created_at < +$to and ${ofIds("users")}`,
    "id = $from: CO-ROUTINE chain; SETUP; SEARCH changes USING INTEGER PRIMARY KEY (rowid=?); RECURSIVE STEP; SCAN chain; SEARCH changes USING INTEGER PRIMARY KEY (rowid=?); SCAN chain",
    "id > $start and id <= $last: SEARCH changes USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
    ofIds("orders"),
    ofIds("users"),
    `status = 'paid' and id >= $first and id <= $last: MERGE (UNION ALL); LEFT; ${byStatus}; RIGHT; ${byStatus}`,
    `status = 'paid' and id >= $first and id <= $last: ${byStatus}`,
    "type = 2 + 3 * $isOrder and record_id = +$id and version % 64 = 0: SEARCH changes USING COVERING INDEX changes_by_record (type=? AND record_id=? AND version>?)",
    `user_id = +$user_id and +status in ('paid', 'shipped') and created_at >= +$from and created_at < +$to and ${byUser}`,
    `user_id = +$user_id and +status in ('paid', 'shipped') and ${byUser}`,
    `user_id = +$user_id and created_at >= +$from and created_at < +$to and ${byUser}`,
    `user_id = +$user_id and ${byUser}`,
  ]);
});

test("statements hide a variable from the planner when its value could matter to a plan", () => {
  const ordered = statements.filter((sql) => /\border by\b|\bmax\(/.test(sql));
  expect(ordered.length).toBeGreaterThan(10);
  expect(ordered.filter((sql) => /[^<>]= \$|record_id = \?/.test(sql))).toEqual([]);
  expect(statements.filter((sql) => /(limit |offset )\$/.test(sql))).toEqual([]);
});

test("an update writes to indexes only when it changes what is indexed", () => {
  const writtenTrees = (sql: string) =>
    db
      .query<{ opcode: string }, []>(`explain ${sql}`)
      .all()
      .filter(({ opcode }) => opcode === "OpenWrite").length;
  const updates = statements.flatMap((sql) => {
    const [, change] = /^\s*update ((?:users|orders)\s+set \w+)/.exec(sql) ?? [];
    return change === undefined ? [] : [[change.replace(/\s+/, " "), writtenTrees(sql) > 1]];
  });
  expect(Object.fromEntries(updates)).toEqual({
    "users set email": true,
    "users set name": false,
    "users set reference": true,
    "orders set status": true,
    "orders set reference": true,
    "orders set user_id": true,
    "orders set refunded": false,
  });
});
