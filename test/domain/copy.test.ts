import { expect, test } from "bun:test";
import { AppError } from "../../src/base/error.ts";
import {
  type CopyRow,
  type CopySource,
  type CopyTarget,
  copiedTables,
  copyRows,
} from "../../src/domain/copy.ts";
import { expectRejection } from "../support/expect-error.ts";

type Table = keyof typeof copiedTables;
type Rows = Record<Table, CopyRow[]>;

const tables = Object.keys(copiedTables) as Table[];
const never = new AbortController().signal;

/** Three rows for every table, so that each column has a number, text and null. */
function makeRows(): Rows {
  const cells = [1, "a", null] as const;
  const rowsOf = ({ columns }: (typeof copiedTables)[Table]): CopyRow[] =>
    cells.map((_, n) =>
      Object.fromEntries(columns.map((name, at) => [name, cells[(n + at) % 3] ?? null])),
    );
  return Object.fromEntries(tables.map((table) => [table, rowsOf(copiedTables[table])])) as Rows;
}

/** @param last the last assigned ids */
function inMemory(rows: Rows, last = { users: 9, orders: 3, tokens: 3 }): CopySource & CopyTarget {
  return {
    async *read(table) {
      yield rows[table].slice(0, 2);
      yield rows[table].slice(2);
    },
    lastId: async (table) => last[table],
    async write(table, written) {
      rows[table].push(...written);
    },
    async advanceIds(table, id) {
      last[table] = id;
    },
  };
}

function makeEmpty(): Rows {
  return Object.fromEntries(tables.map((table) => [table, []])) as unknown as Rows;
}

const cells = tables.flatMap((table) =>
  copiedTables[table].columns.map((column) => [table, column] as const),
);

/** Copies with a target that is changed before the copy is verified. */
async function expectRejected(spoil: (rows: Rows) => void, message: string): Promise<void> {
  const rows = makeEmpty();
  const into = inMemory(rows);
  const advanceIds: CopyTarget["advanceIds"] = async (table, id) => {
    await into.advanceIds(table, id);
    if (table === "tokens") spoil(rows);
  };
  const copying = copyRows(inMemory(makeRows()), { ...into, advanceIds }, never);
  await expectRejection(copying, "operator", message);
}

test.each(cells)(
  "copyRows rejects when a copied row of %s has a different %s",
  async (table, column) => {
    for (const [row, other] of ["a ", 2, ""].entries()) {
      await expectRejected((rows) => {
        rows[table][row] = { ...rows[table][row], [column]: other };
      }, `the copied rows of ${table} differ from the source`);
    }
  },
);

test.each(tables)(
  "copyRows rejects when %s has a row too few or too many, or another order",
  async (table) => {
    const message = `the copied rows of ${table} differ from the source`;
    await expectRejected((rows) => rows[table].pop(), message);
    await expectRejected((rows) => rows[table].push(rows[table][0] ?? {}), message);
    await expectRejected((rows) => rows[table].reverse(), message);
  },
);

test("copyRows rejects when ids could be assigned again", async () => {
  const last = { users: 0, orders: 0, tokens: 0 };
  const into = { ...inMemory(makeEmpty(), last), advanceIds: async () => {} };
  await expectRejection(
    copyRows(inMemory(makeRows()), into, never),
    "operator",
    "ids of users up to 9 could be assigned again",
  );
});

test("copyRows stops after the current batch when aborted", async () => {
  const stop = new AbortController();
  const rows = makeEmpty();
  const target = inMemory(rows);
  const write: CopyTarget["write"] = async (table, written) => {
    await target.write(table, written);
    if (table === "orders") stop.abort(new AppError("operator", "interrupted"));
  };
  const copying = copyRows(inMemory(makeRows()), { ...target, write }, stop.signal);
  await expectRejection(copying, "operator", "interrupted");
  expect(tables.map((table) => rows[table].length)).toEqual([3, 2, 0, 0, 0]);
});
