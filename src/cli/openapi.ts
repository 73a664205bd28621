import { openapiJson } from "../http/app.ts";
import { build } from "./build.ts";
import type { System } from "./system/system.ts";

export function printDocument(system: System): void {
  system.stdout(`${openapiJson(build.version)}\n`);
}
