// The store for Citus on the tables of one server, without Citus: its statements and results, not its plans.
import { describe } from "bun:test";
import { openPostgres } from "../../src/postgres/backend.ts";
import { storeContract } from "../store.contract.ts";
import { type Cluster, findCluster } from "./cluster.ts";

const cluster = await findCluster();
const migration = `${import.meta.dir}/../../src/postgres/citus/migrations/0002_tables.sql`;

/** @returns the URL of a database with the tables, which are not distributed */
async function makeTemplate(server: Cluster): Promise<string> {
  const url = await server.createDatabase();
  const script = await Bun.file(migration).text();
  const distribution = /^select create_\w+_table\(.*\);$/gm;
  await server.run(url, script.replaceAll(distribution, ""));
  await server.run(url, "insert into user_api values (2, 'citus', '')");
  return url;
}

if (cluster !== null) {
  const template = makeTemplate(cluster);
  describe("on one server", () => {
    storeContract(
      "citus",
      async ({
        now = () => new Date(),
        max_pending_writes = 1000,
        max_unsent_bytes = 2 ** 25,
      } = {}) => {
        const url = await cluster.createDatabase(await template);
        const store = await openPostgres({
          database_url: `${url}&layout=citus`,
          max_pending_writes,
          max_unsent_bytes,
          exclusive: true,
          create: true,
          now,
        });
        return {
          ...store,
          async close() {
            await store.close();
            await cluster.dropDatabase(url);
          },
        };
      },
    );
  });
}
