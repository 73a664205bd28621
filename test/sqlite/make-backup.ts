// What the tests of backups and restores share.

import { readdirSync } from "node:fs";
import { setImmediate as nextTurn } from "node:timers/promises";
import type { BackUpOptions, StoreMode } from "../../src/domain/store.ts";
import { backUpSqlite } from "../../src/sqlite/backend.ts";
import { newUser, orderFields } from "../contract/open.ts";
import type { TemporaryDirectory } from "../support/directory.ts";
import { makePath, openDatabase } from "./open-database.ts";

export const now = () => new Date("2026-11-20T18:57:03.120Z");
const never = new AbortController().signal;

export function open(databaseUrl: string, mode: StoreMode = "write") {
  return openDatabase(databaseUrl, { mode, now });
}

/** Creates a database with two users and an order. */
export async function makeDatabase() {
  const { directory, path } = makePath();
  await using store = await open(path);
  const { id } = await newUser(store);
  await newUser(store);
  await store.orders.create(orderFields(id), null);
  return { directory, path };
}

/** A statement after which a row of such a database breaks a constraint. */
export const breakConstraint = `
  pragma ignore_check_constraints = on;
  update users set name = '' where id = 2;
`;

export async function untilDraft({ path, at }: TemporaryDirectory): Promise<string> {
  for (;;) {
    const draft = readdirSync(path).find((name) => name.endsWith(".partial"));
    if (draft !== undefined) return at(draft);
    await nextTurn();
  }
}

export function backUp(databaseUrl: string, path: string, options: Partial<BackUpOptions> = {}) {
  return backUpSqlite({ databaseUrl, path, signal: never, ...options });
}

export async function makeBackup() {
  const { directory, path } = await makeDatabase();
  const copy = directory.at("copy.db");
  await backUp(path, copy);
  return { directory, path, copy };
}

export async function totalOf(path: string): Promise<number> {
  await using store = await open(path);
  return (await store.users.list({ limit: 1, offset: 0 })).total;
}
