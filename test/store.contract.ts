// Tests of the ports in src, for every database. Each file of test/contract tests one port; the test of a
// database calls `storeContract` with a function that opens it.
import { describe } from "bun:test";
import { changesContract } from "./contract/changes.ts";
import { copySourceContract } from "./contract/copy-source.ts";
import { idempotencyContract } from "./contract/idempotency.ts";
import { importContract } from "./contract/import.ts";
import { listsContract } from "./contract/lists.ts";
import type { Open } from "./contract/open.ts";
import { ordersContract } from "./contract/orders.ts";
import { recordTextContract } from "./contract/record-text.ts";
import { tokensContract } from "./contract/tokens.ts";
import { usersContract } from "./contract/users.ts";

/** @param open opens a new, empty database on each call */
export function storeContract(name: string, open: Open): void {
  describe(name, () => {
    usersContract(open);
    ordersContract(open);
    listsContract(open);
    recordTextContract(open);
    idempotencyContract(open);
    tokensContract(open);
    importContract(open);
    copySourceContract(open);
    changesContract(open);
  });
}
