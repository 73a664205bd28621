/**
 * A transaction that creates or modifies `users`, which is on every server, must use one connection per server for
 * distributed tables, too.
 */
export const sequential_mode = "set local citus.multi_shard_modify_mode to 'sequential'";

/**
 * Adds the settings of a connection to the coordinator. Each connection of the pool uses one connection per server.
 * Without this limit, a statement that asks all shards opens up to 16 per server if it takes more than 10 ms, so that
 * a busy cluster runs out of connections.
 * @param driver_url a parameter in it overrides the setting. A pooler (`prepare=false`) rejects settings
 */
export function withCitusSettings(driver_url: string): string {
  const url = new URL(driver_url);
  const name = "citus.max_adaptive_executor_pool_size";
  if (url.searchParams.get("prepare") === "false" || url.searchParams.has(name)) return driver_url;
  // `URLSearchParams` would encode the other parameters in another way.
  return `${driver_url}${url.search === "" ? "?" : "&"}${name}=1`;
}
