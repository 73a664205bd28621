/**
 * Databases with the schema. Creating one copies 300 files, which takes longer than most tests. So a database is
 * emptied after a test, and the next test gets it. If a test has changed more than rows, its database is dropped.
 */
import { SQL } from "bun";
import { openPostgres } from "../../src/postgres/backend.ts";
import { storeOptions, untilConnected } from "../support/open-store.ts";
import type { Cluster } from "./cluster.ts";
import { hostileOperators } from "./hostile.ts";

export interface DatabasePool {
  /** @returns the URL of a database with the schema and no rows, which is nobody else's until it is released */
  take(): Promise<string>;
  release(url: string): Promise<void>;
}

/** All that a test can change in its database except rows. An analyzed table has other plans than a new one. */
const selectFingerprint = `
  with tables as (
    select oid from pg_class where relnamespace = 'public'::regnamespace
  )
  select md5(string_agg(entry, '' order by entry)) as fingerprint
  from (
    select t::text from pg_attribute t where attrelid in (select oid from tables)
    union all select t::text from pg_index t where indrelid in (select oid from tables)
    union all select t::text from pg_trigger t where tgrelid in (select oid from tables)
    union all select t::text from pg_constraint t where connamespace = 'public'::regnamespace
    union all select t::text from pg_proc t where pronamespace = 'public'::regnamespace
    union all select oid::regclass::text from tables
    union all select extname from pg_extension
    union all select nspname from pg_namespace where nspname::text !~ '^pg_'
    union all select starelid::text from pg_statistic where starelid in (select oid from tables)
    union all select t::text from pg_db_role_setting t, pg_database where pg_database.oid = setdatabase
      and datname = current_database()
  ) as entries (entry)
`;

/**
 * Truncating creates new files, which takes longer than most tests. A table of this size has the same plans as a new one,
 * although deleted rows take up space.
 */
const MAX_DELETED_BYTES = 65_536;

/** @returns statements that bring the rows back to what they are now in this database, and the sequences to their start */
async function readReset(cluster: Cluster, url: string): Promise<string> {
  const selectTables = "select tablename as name from pg_tables where schemaname = 'public'";
  const names = (await cluster.run<{ name: string }>(url, selectTables)).map(({ name }) => name);
  const inserts = names.map(async (name) => {
    const [row] = await cluster.run<{ rows: string | null }>(
      url,
      `select quote_literal(json_agg(t)::text) as rows from ${name} t`,
    );
    if (row === undefined || row.rows === null) return "";
    return `insert into ${name} select * from json_populate_recordset(null::${name}, ${row.rows});`;
  });
  return `
    begin;
    -- No checks of foreign keys.
    set local session_replication_role = replica;
    do $$
      declare
        name regclass;
      begin
        foreach name in array '{${names.join()}}'::regclass[] loop
          if pg_table_size(name) > ${MAX_DELETED_BYTES} then
            execute format('truncate %s cascade', name);
          elsif pg_relation_size(name) > 0 then
            execute format('delete from %s', name);
          end if;
        end loop;
      end
    $$;
    select setval(seqrelid, seqstart, false) from pg_sequence;
    ${(await Promise.all(inserts)).join("\n")}
    -- Otherwise the feed would be one that was restored.
    update change_feed set xid = txid_current();
    commit;
  `;
}

interface Template {
  readonly url: string;
  readonly fingerprint: string | undefined;
  readonly reset: string;
}

/** @returns whether the database is like the template again; it is unchanged otherwise */
async function reset(url: string, template: Template): Promise<boolean> {
  const sql = new SQL(url, { max: 1 });
  try {
    const [{ fingerprint }] = await sql.unsafe(selectFingerprint);
    if (fingerprint !== template.fingerprint) return false;
    await sql.unsafe(template.reset);
    return true;
  } finally {
    await sql.close();
  }
}

function createDatabasePool(
  cluster: Cluster,
  migrate: (url: string) => Promise<void>,
): DatabasePool {
  const idle: string[] = [];

  async function makeTemplate(): Promise<Template> {
    const url = await cluster.createDatabase();
    await migrate(url);
    const [row] = await cluster.run<{ fingerprint: string }>(url, selectFingerprint);
    return { url, fingerprint: row?.fingerprint, reset: await readReset(cluster, url) };
  }
  let making: Promise<Template> | null = null;
  const findTemplate = () => {
    making ??= makeTemplate();
    return making;
  };

  return {
    async take() {
      return idle.pop() ?? cluster.createDatabase((await findTemplate()).url);
    },
    async release(url) {
      await cluster.disconnect(url);
      if (cluster.temporary && (await reset(url, await findTemplate()))) idle.push(url);
      else await cluster.dropDatabase(url);
    },
  };
}

/** For tests with few concurrent calls: the driver opens all connections at once, which takes longer than most tests. */
export function withFewConnections(url: string): string {
  const changed = new URL(url);
  changed.searchParams.set("max", "3");
  return changed.href;
}

const pools = new WeakMap<Cluster, DatabasePool>();

/** Databases on one server, shared by all test files of a process. */
export function databasesOf(cluster: Cluster): DatabasePool {
  const pool =
    pools.get(cluster) ??
    createDatabasePool(cluster, async (databaseUrl) => {
      const open = () => openPostgres({ ...storeOptions, databaseUrl });
      await (await untilConnected(open)).close();
      await cluster.run(databaseUrl, hostileOperators);
    });
  pools.set(cluster, pool);
  return pool;
}
