// The contract as a model, on servers: two replicas on PostgreSQL and Citus. The binary is killed while it works.
import { expect, test } from "bun:test";
import { play } from "../../model/contract/play.ts";
import { openPort } from "../../model/contract/server-port.ts";
import { describe } from "../../model/contract/shrink.ts";
import { makeSteps } from "../../model/contract/steps.ts";
import { isLong } from "../../support/long.ts";
import { againstCitus } from "../backend.ts";

// On Citus, the model is played nowhere else.
const HISTORIES = Number(Bun.env["CONTRACT_HISTORIES"] ?? (isLong || againstCitus ? 15 : 5));

test("histories of requests at the same time, and of servers that are killed, keep all promises", async () => {
  for (let seed = 1; seed <= HISTORIES; seed += 1) {
    const result = await play(makeSteps(seed), openPort);
    const { broken } = result;
    expect(broken === null ? "" : describe(seed, broken.rule, result)).toBe("");
  }
}, 36_000_000);
