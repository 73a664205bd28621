import { openapiJson } from "../http/app.ts";
import type { Io } from "./context.ts";

/** Prints the document that a server returns at `/api/v1/openapi.json`. */
export function printDocument(version: string, io: Io): void {
  io.stdout(`${openapiJson(version)}\n`);
}
