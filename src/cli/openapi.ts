import { openapiJson } from "../http/openapi.ts";
import type { Io } from "./context.ts";

/** Prints what a server answers at `/api/v1/openapi.json`. */
export function printDocument(version: string, io: Io): void {
  io.stdout(`${openapiJson(version)}\n`);
}
