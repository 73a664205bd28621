import { openapiJson } from "../http/app.ts";
import { build } from "./build.ts";
import type { System } from "./files/system.ts";

/** Prints the document that a server returns at `/api/v1/openapi.json`. */
export function printDocument(system: System): void {
  system.stdout(`${openapiJson(build.version)}\n`);
}
