/** Databases with the schema, each a copy of one that is migrated once. */
import { openPostgres } from "../../src/postgres/backend.ts";
import { storeOptions, untilConnected } from "../support/open-store.ts";
import type { Cluster } from "./cluster.ts";
import { hostileOperators } from "./hostile.ts";

interface DatabasePool {
  /** @returns the URL of a database with the schema and no rows, for the caller alone until it is released */
  take(): Promise<string>;
  release(url: string): Promise<void>;
}

/** For tests with few concurrent calls: the driver opens all connections at once, which takes longer than most tests. */
export function withFewConnections(url: string): string {
  const changed = new URL(url);
  changed.searchParams.set("max", "3");
  return changed.href;
}

async function makeTemplate(cluster: Cluster): Promise<string> {
  const databaseUrl = await cluster.createDatabase();
  const open = () => openPostgres({ ...storeOptions, databaseUrl });
  await (await untilConnected(open)).close();
  await cluster.run(databaseUrl, hostileOperators);
  await cluster.disconnect(databaseUrl);
  return databaseUrl;
}

const templates = new WeakMap<Cluster, Promise<string>>();

export function databasesOf(cluster: Cluster): DatabasePool {
  return {
    async take() {
      const template = templates.get(cluster) ?? makeTemplate(cluster);
      templates.set(cluster, template);
      return cluster.createDatabase(await template);
    },
    release: cluster.dropDatabase,
  };
}
