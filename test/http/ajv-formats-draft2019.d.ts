/** It has no types of its own. */
declare module "ajv-formats-draft2019" {
  import type { Ajv } from "ajv";
  export default function addFormats(ajv: Ajv): Ajv;
}
