// The contract as a model, on servers: two replicas on PostgreSQL and Citus. The binary is killed while it works.
import { test } from "bun:test";
import { playHistories } from "../../model/contract/server-port.ts";
import { isLong } from "../../support/long.ts";

const HISTORIES = Number(Bun.env["CONTRACT_HISTORIES"] ?? (isLong ? 2 : 1));

test(
  "histories of requests at the same time, and of servers that are killed, keep all promises",
  () => playHistories(HISTORIES),
  36_000_000,
);
