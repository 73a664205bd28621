// The contract as a model, on servers: two replicas on PostgreSQL and Citus. The binary is killed while it works.
import { test } from "bun:test";
import { playHistories } from "../../model/contract/server-port.ts";
import { isLong } from "../../support/long.ts";
import { againstCitus } from "../backend.ts";

// On Citus, the model is played nowhere else.
const HISTORIES = Number(Bun.env["CONTRACT_HISTORIES"] ?? (isLong || againstCitus ? 5 : 2));

test(
  "histories of requests at the same time, and of servers that are killed, keep all promises",
  () => playHistories(HISTORIES),
  36_000_000,
);
