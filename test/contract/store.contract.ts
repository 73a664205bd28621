// Tests of the ports in src, for every database. Each file of test/contract tests one port; the test of a
// database calls `storeContract` with a function that opens it.
import { describe } from "bun:test";
import { changesContract } from "./changes.ts";
import { copySourceContract } from "./copy-source.ts";
import { idempotencyContract } from "./idempotency.ts";
import { importUpdatesContract } from "./import-updates.ts";
import { listsContract } from "./lists.ts";
import type { Open } from "./open.ts";
import { recordTextContract } from "./record-text.ts";
import { recordsContract } from "./records.ts";
import { tokensContract } from "./tokens.ts";

/** @param open opens a new, empty database on each call */
export function storeContract(name: string, open: Open): void {
  describe(name, () => {
    recordsContract(open);
    listsContract(open);
    recordTextContract(open);
    idempotencyContract(open);
    tokensContract(open);
    importUpdatesContract(open);
    copySourceContract(open);
    changesContract(open);
  });
}
