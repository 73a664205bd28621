/**
 * A transaction that creates or modifies `users`, which is on every server, must use one connection per server for
 * distributed tables, too.
 */
export const sequentialMode = "set local citus.multi_shard_modify_mode to 'sequential'";

/** Settings of each connection to the coordinator, in addition to those of every layout. */
export const citusSettings = {
  // Connections per worker. Without this limit, a statement that asks all shards opens up to 16 if it takes more than
  // 10 ms, so that a busy cluster runs out of connections.
  "citus.max_adaptive_executor_pool_size": 1,
  // The rows are mostly text, of which the binary form is not smaller, and each statement takes less time without it.
  "citus.enable_binary_protocol": "off",
};
