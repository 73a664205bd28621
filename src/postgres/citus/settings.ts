/**
 * A transaction that creates or modifies `users`, which is on every server, must use one connection per server for
 * distributed tables, too.
 */
export const sequential_mode = "set local citus.multi_shard_modify_mode to 'sequential'";

/** Settings of each connection to the coordinator. */
const settings = {
  // Connections per worker. Without this limit, a statement that asks all shards opens up to 16 if it takes more than
  // 10 ms, so that a busy cluster runs out of connections.
  "citus.max_adaptive_executor_pool_size": "1",
  // The rows are mostly text, of which the binary form is not smaller, and each statement takes less time without it.
  "citus.enable_binary_protocol": "off",
};

/**
 * Adds the settings to the URL.
 * @param driver_url a parameter in it overrides its setting. A pooler (`prepare=false`) rejects settings
 */
export function withCitusSettings(driver_url: string): string {
  const url = new URL(driver_url);
  if (url.searchParams.get("prepare") === "false") return driver_url;
  const added = Object.entries(settings).filter(([name]) => !url.searchParams.has(name));
  const parameters = added.map(([name, value]) => `${name}=${value}`).join("&");
  if (parameters === "") return driver_url;
  // `URLSearchParams` would encode the other parameters in another way.
  return `${driver_url}${url.search === "" ? "?" : "&"}${parameters}`;
}
