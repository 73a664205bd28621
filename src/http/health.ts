import { Elysia } from "elysia";
import type { Store } from "../store.ts";
import { envelope } from "./envelope.ts";
import { noQuery } from "./params.ts";

/** Whether the service can read its database. Public, so it tells nothing else. */
export function health(store: Store) {
  return new Elysia().get(
    "/api/v1/health",
    async () => {
      await store.ping();
      return envelope({ status: "ok" });
    },
    { query: noQuery },
  );
}
