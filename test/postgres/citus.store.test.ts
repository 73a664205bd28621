import { describe } from "bun:test";
import { openPostgres } from "../../src/postgres/backend.ts";
import { storeContract } from "../store.contract.ts";
import { citus_url, releaseCitusDatabase, takeCitusDatabase } from "./citus.ts";

describe.if(citus_url !== null)("with TEST_CITUS_URL", () => {
  storeContract(
    "citus",
    async ({
      now = () => new Date(),
      max_pending_writes = 1000,
      max_unsent_bytes = 2 ** 25,
    } = {}) => {
      const database_url = await takeCitusDatabase();
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
          releaseCitusDatabase(database_url);
        },
      };
    },
  );
});
