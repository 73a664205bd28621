// A page of a list or of an export begins at an entry of an index, so that it costs the same at any depth. No
// statement is prepared again at each execution.
import { Database } from "bun:sqlite";
import { afterAll, expect, spyOn, test } from "bun:test";
import type { OrderStatus } from "../../src/domain/order.ts";
import { makeDirectory } from "../support/directory.ts";
import { openDatabase } from "./open-database.ts";

const directory = makeDirectory();
const path = directory.at("a.db");
const prepare = spyOn(Database.prototype, "prepare");
const store = await openDatabase(path);
const status: OrderStatus[] = ["paid", "pending"];
for (const filter of [
  { status },
  { status: status.slice(1) },
  { user_id: 1 },
  { user_id: 1, status },
])
  await store.orders.list({ limit: 1, offset: 0, ...filter });
await store.close();
const statements = prepare.mock.calls.map(([sql]) => sql);
prepare.mockRestore();
const db = new Database(path, { strict: true });
afterAll(() => {
  db.close();
  directory[Symbol.dispose]();
});

test("pages are read from an index without a sort when they begin after an id", () => {
  const pages = statements.filter((sql) => /limit \+\$limit/.test(sql));
  const plans = new Set<string>();
  for (const sql of pages) {
    const steps = db.query<{ detail: string }, []>(`explain query plan ${sql}`).all();
    const [, conditions = ""] = /\bwhere ([^\n]*)/.exec(sql) ?? [];
    plans.add(`${conditions.trim()}: ${steps.map(({ detail }) => detail).join("; ")}`);
  }
  expect([...plans].sort()).toEqual([
    "(type > 3) = +$isOrder and record_id = +$id and id <= $last and id > $start: SEARCH changes USING INDEX changes_by_record (<expr>=? AND record_id=? AND rowid>? AND rowid<?)",
    "id <= $last: SEARCH orders USING INTEGER PRIMARY KEY (rowid<?)",
    "id <= $last: SEARCH users USING INTEGER PRIMARY KEY (rowid<?)",
    "id > $after: SEARCH orders USING INTEGER PRIMARY KEY (rowid>?)",
    "id > $after: SEARCH users USING INTEGER PRIMARY KEY (rowid>?)",
    "id > $start and id <= $last: SEARCH changes USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)",
    "status = 'pending' and id <= $last: MERGE (UNION ALL); LEFT; SEARCH orders USING INDEX orders_by_status (status=? AND rowid<?); RIGHT; SEARCH orders USING INDEX orders_by_status (status=? AND rowid<?)",
    "status = 'pending' and id <= $last: SEARCH orders USING INDEX orders_by_status (status=? AND rowid<?)",
    "status = 'pending' and id > $after: MERGE (UNION ALL); LEFT; SEARCH orders USING INDEX orders_by_status (status=? AND rowid>?); RIGHT; SEARCH orders USING INDEX orders_by_status (status=? AND rowid>?)",
    "status = 'pending' and id > $after: SEARCH orders USING INDEX orders_by_status (status=? AND rowid>?)",
    "user_id = +$user_id and +status in ('pending', 'paid') and id > $after and id <= $last: SEARCH orders USING INDEX orders_by_user (user_id=? AND id>? AND id<?)",
    "user_id = +$user_id and id > $after and id <= $last: SEARCH orders USING INDEX orders_by_user (user_id=? AND id>? AND id<?)",
  ]);
});

test("statements hide a variable from the planner when its value could matter to a plan", () => {
  const ordered = statements.filter((sql) => /\border by\b|\bmax\(/.test(sql));
  expect(ordered.length).toBeGreaterThan(10);
  expect(ordered.filter((sql) => /[^<>]= \$/.test(sql))).toEqual([]);
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
