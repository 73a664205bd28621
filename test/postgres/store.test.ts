import { openPostgres } from "../../src/postgres/backend.ts";
import { storeContract } from "../store.contract.ts";
import { findCluster } from "./cluster.ts";
import { makeDatabase } from "./database.ts";

const cluster = await findCluster();

if (cluster !== null) {
  storeContract(
    "postgres",
    async ({
      now = () => new Date(),
      max_pending_writes = 1000,
      max_unsent_bytes = 2 ** 25,
    } = {}) => {
      const database_url = await makeDatabase(cluster);
      const options = {
        database_url,
        max_pending_writes,
        max_unsent_bytes,
        exclusive: true,
        create: true,
        now,
      };
      const store = await openPostgres(options);
      return {
        ...store,
        async close() {
          await store.close();
          await cluster.dropDatabase(database_url);
        },
      };
    },
  );
}
