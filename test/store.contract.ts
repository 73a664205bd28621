// The promises of the ports in src, which any database must keep. Each file of test/contract has
// those of one port; a database's own test calls `storeContract` with a way to open it.
import { describe } from "bun:test";
import { atOnceContract } from "./contract/at-once.ts";
import { keysContract } from "./contract/keys.ts";
import { listsContract } from "./contract/lists.ts";
import type { Open } from "./contract/open.ts";
import { ordersContract } from "./contract/orders.ts";
import { snapshotContract } from "./contract/snapshot.ts";
import { tokensContract } from "./contract/tokens.ts";
import { transferContract } from "./contract/transfer.ts";
import { usersContract } from "./contract/users.ts";

/** @param open opens a new, empty database with every call */
export function storeContract(name: string, open: Open): void {
  describe(name, () => {
    usersContract(open);
    ordersContract(open);
    listsContract(open);
    keysContract(open);
    tokensContract(open);
    atOnceContract(open);
    transferContract(open);
    snapshotContract(open);
  });
}
