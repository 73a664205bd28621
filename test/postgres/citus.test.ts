// The stores with the statements for Citus, on the tables of one server. Citus itself is not needed.
import { describe } from "bun:test";
import { createLargePages } from "../../src/large-page.ts";
import { openPostgres } from "../../src/postgres/backend.ts";
import { createCitusAccess } from "../../src/postgres/citus.ts";
import { type Connection, connect } from "../../src/postgres/connection.ts";
import { createOrderStore } from "../../src/postgres/orders.ts";
import { createTokenStore } from "../../src/postgres/tokens.ts";
import { createUserStore } from "../../src/postgres/users.ts";
import { idempotencyContract } from "../contract/idempotency.ts";
import { listsContract } from "../contract/lists.ts";
import type { Open } from "../contract/open.ts";
import { ordersContract } from "../contract/orders.ts";
import { tokensContract } from "../contract/tokens.ts";
import { usersContract } from "../contract/users.ts";
import { findCluster } from "./cluster.ts";
import { makeDatabase } from "./database.ts";

const cluster = await findCluster();

if (cluster !== null) {
  const open: Open = async ({
    now = () => new Date(),
    max_pending_writes = 1000,
    max_unsent_bytes = 2 ** 25,
  } = {}) => {
    const database_url = await makeDatabase(cluster);
    const options = { database_url, max_pending_writes, max_unsent_bytes, now };
    const store = await openPostgres({ ...options, exclusive: true, create: true });
    const db = connect(options);
    const access = createCitusAccess(db, createLargePages(max_unsent_bytes), now);
    const connection: Connection = { db, now, ...access };
    return {
      ...store,
      users: createUserStore(connection),
      orders: createOrderStore(connection),
      tokens: createTokenStore(connection),
      async close() {
        await Promise.all([db.close(), store.close()]);
        await cluster.dropDatabase(database_url);
      },
    };
  };

  describe("the stores for Citus", () => {
    usersContract(open);
    ordersContract(open);
    listsContract(open);
    idempotencyContract(open);
    tokensContract(open);
  });
}
