/**
 * Names that the documents use before the code does. Delete an entry when the code has the name, and this
 * file with the last one.
 */

/** Files by their present path, and the path that the documents use. */
export const renamed_files: Readonly<Record<string, string>> = {
  "src/http/openapi.headers.ts": "src/http/openapi.components.ts",
  "src/http/openapi.operations.ts": "src/http/openapi.components.ts",
  "src/http/openapi.paths.ts": "src/http/openapi.components.ts",
  "src/http/openapi.responses.ts": "src/http/openapi.components.ts",
  "src/http/openapi.schemas.ts": "src/http/openapi.components.ts",
  "src/postgres/import.orders.ts": "src/postgres/import.ts",
  "src/postgres/import.users.ts": "src/postgres/import.ts",
  "src/sqlite/import.orders.ts": "src/sqlite/import.ts",
  "src/sqlite/import.users.ts": "src/sqlite/import.ts",
};

/** Other files, settings and metrics. */
export const pending_names: readonly string[] = ["user_api_build_info"];
