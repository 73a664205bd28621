import { openapiJson } from "../http/app.ts";
import type { System } from "./system.ts";

/** Prints the document that a server returns at `/api/v1/openapi.json`. */
export function printDocument(version: string, system: System): void {
  system.stdout(`${openapiJson(version)}\n`);
}
