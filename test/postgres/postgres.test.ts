import { afterAll } from "bun:test";
import { openPostgres } from "../../src/postgres/backend.ts";
import { storeContract } from "../contract/store.contract.ts";
import { storeOptions } from "../support/open-store.ts";
import { findCluster } from "./cluster.ts";
import { runOn } from "./instance.ts";

const cluster = await findCluster();

/** Takes less time than a new database. */
const emptyTables = `
  truncate users, orders, idempotency_keys, tokens, change_outbox, changes;
  select setval(seqrelid, seqstart, false) from pg_sequence;
  update change_feed
  set first = 1, last = 0, last_xid = 0, xid = txid_current(), next_xid = 0, open_xids = '{}', totals = '{0,0,0,0,0,0}'
`;

if (cluster !== null) {
  const free: string[] = [];
  afterAll(() => Promise.all(free.map(cluster.dropDatabase)));
  storeContract("postgres", async (options) => {
    const url = free.pop() ?? (await cluster.createDatabase());
    // Few: the driver opens all connections at the same time, which takes longer than most tests.
    const databaseUrl = url.replace("max=5", "max=3");
    const store = await openPostgres({ ...storeOptions, ...options, databaseUrl });
    return {
      ...store,
      async close() {
        await store.close();
        await runOn(url, emptyTables);
        free.push(url);
      },
    };
  });
}
