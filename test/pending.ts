/**
 * Names that the documents use before the code does. Delete an entry when the code has the name, and this
 * file with the last one.
 */

/** Files by their present path, and the path that the documents use. */
export const renamed_files: Readonly<Record<string, string>> = {
  "src/probe.ts": "src/write-probe.ts",
  "src/transfer.ts": "src/import.ts",
  "src/version.ts": "src/precondition.ts",
  "src/cli/files.ts": "src/cli/streams.ts",
  "src/cli/io.ts": "src/cli/context.ts",
  "src/http/exchange.ts": "src/http/lifecycle.ts",
  "src/http/listen.ts": "src/http/server.ts",
  "src/http/openapi.headers.ts": "src/http/openapi.components.ts",
  "src/http/openapi.operations.ts": "src/http/openapi.components.ts",
  "src/http/openapi.paths.ts": "src/http/openapi.components.ts",
  "src/http/openapi.responses.ts": "src/http/openapi.components.ts",
  "src/http/openapi.schemas.ts": "src/http/openapi.components.ts",
  "src/http/rate.ts": "src/http/rate-limit.ts",
  "src/http/records.ts": "src/http/fast-path.ts",
  "src/http/requests.ts": "src/http/request-metrics.ts",
  "src/postgres/again.ts": "src/postgres/retry.ts",
  "src/postgres/backup.ts": "src/postgres/backend.ts",
  "src/postgres/copy.ts": "src/postgres/copy-format.ts",
  "src/postgres/failures.ts": "src/postgres/errors.ts",
  "src/postgres/fill.ts": "src/postgres/copy-target.ts",
  "src/postgres/gate.ts": "src/postgres/limiter.ts",
  "src/postgres/keys.ts": "src/postgres/idempotency.ts",
  "src/postgres/open.ts": "src/postgres/backend.ts",
  "src/postgres/reasons.ts": "src/postgres/errors.ts",
  "src/postgres/snapshot.ts": "src/postgres/copy-source.ts",
  "src/postgres/transfer.orders.ts": "src/postgres/import.ts",
  "src/postgres/transfer.ts": "src/postgres/import.ts",
  "src/postgres/transfer.users.ts": "src/postgres/import.ts",
  "src/sqlite/buckets.ts": "src/sqlite/count-index.ts",
  "src/sqlite/commit.ts": "src/sqlite/writer.ts",
  "src/sqlite/failures.ts": "src/sqlite/errors.ts",
  "src/sqlite/fill.ts": "src/sqlite/copy-target.ts",
  "src/sqlite/ids.ts": "src/sqlite/count-index.import.ts",
  "src/sqlite/keys.ts": "src/sqlite/idempotency.ts",
  "src/sqlite/lock.ts": "src/sqlite/server-lock.ts",
  "src/sqlite/open.ts": "src/sqlite/backend.ts",
  "src/sqlite/places.ts": "src/sqlite/user-positions.ts",
  "src/sqlite/read.ts": "src/sqlite/reader.ts",
  "src/sqlite/reasons.ts": "src/sqlite/errors.ts",
  "src/sqlite/snapshot.ts": "src/sqlite/copy-source.ts",
  "src/sqlite/transfer.orders.ts": "src/sqlite/import.ts",
  "src/sqlite/transfer.ts": "src/sqlite/import.ts",
  "src/sqlite/transfer.users.ts": "src/sqlite/import.ts",
};

/** Other files, settings and metrics. */
export const pending_names: readonly string[] = [
  "database-url.ts",
  "preconditions.ts",
  "query.ts",
  "user_api_build_info",
  "user_api_commit_batch_size",
  "user_api_wal_bytes",
];
