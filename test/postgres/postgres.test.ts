import { openPostgres } from "../../src/postgres/backend.ts";
import { storeContract } from "../contract/store.contract.ts";
import { storeOptions } from "../support/open-store.ts";
import { findCluster } from "./cluster.ts";
import { databasesOf, withFewConnections } from "./database.ts";

const cluster = await findCluster();

if (cluster !== null) {
  const databases = databasesOf(cluster);
  storeContract("postgres", async (options) => {
    const url = await databases.take();
    const databaseUrl = withFewConnections(url);
    const store = await openPostgres({ ...storeOptions, ...options, databaseUrl });
    return {
      ...store,
      async close() {
        await store.close();
        await databases.release(url);
      },
    };
  });
}
