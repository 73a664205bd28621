import { afterAll } from "bun:test";
import { openPostgres } from "../../src/postgres/backend.ts";
import { storeContract } from "../contract/store.contract.ts";
import { storeOptions } from "../support/open-store.ts";
import { emptyTables, findCluster } from "./cluster.ts";
import { runOn } from "./instance.ts";

const cluster = await findCluster();

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
