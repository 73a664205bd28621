// Tests of the ports in src, for every database. Each file of test/contract tests one port; the test of a
// database calls `storeContract` with a function that opens it.
import { describe } from "bun:test";
import { changesContract } from "./changes.ts";
import { copySourceContract } from "./copy-source.ts";
import { idempotencyContract } from "./idempotency.ts";
import { importContract } from "./import.ts";
import { importUpdatesContract } from "./import-updates.ts";
import { listsContract } from "./lists.ts";
import type { Open } from "./open.ts";
import { ordersContract } from "./orders.ts";
import { recordTextContract } from "./record-text.ts";
import { referencesContract } from "./references.ts";
import { tokensContract } from "./tokens.ts";
import { usersContract } from "./users.ts";

/** @param open opens a new, empty database on each call */
export function storeContract(name: string, open: Open): void {
  describe(name, () => {
    usersContract(open);
    ordersContract(open);
    listsContract(open);
    recordTextContract(open);
    referencesContract(open);
    idempotencyContract(open);
    tokensContract(open);
    importContract(open);
    importUpdatesContract(open);
    copySourceContract(open);
    changesContract(open);
  });
}
