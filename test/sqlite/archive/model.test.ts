// The log of the archive in simulated processes: nothing that a server has acknowledged is lost, a restore never takes
// a loss for the end, nor the end for a loss. Each part of the protocol is needed: without it, something is lost.
import { expect, test } from "bun:test";
import type { ObjectStorage } from "../../../src/domain/object-storage.ts";
import { prefixes } from "../../../src/sqlite/archive/keys.ts";
import { isLong } from "../../support/long.ts";
import type { Mutation } from "./simulated-world.ts";
import { simulate } from "./simulation.ts";

const HISTORIES = Number(Bun.env["ARCHIVE_HISTORIES"] ?? (isLong ? 1_000 : 300));
/** More than any of the mutations needs. */
const MAX_HISTORIES = 5_000;

/** Objects under this prefix are put, or count as created although they were not. */
function changeCreate(
  prefix: string,
  create: (
    storage: ObjectStorage,
    ...given: Parameters<ObjectStorage["create"]>
  ) => Promise<unknown>,
): Mutation {
  return {
    storage: (storage) => ({
      ...storage,
      async create(key, body) {
        if (!key.startsWith(prefix)) return storage.create(key, body);
        await create(storage, key, body);
        return true;
      },
    }),
  };
}

const mutations: Readonly<Record<string, Mutation>> = {
  "no log is sealed": { sealsNothing: true },
  "a segment replaces what is there": changeCreate(prefixes.log, ({ put }, ...given) =>
    put(...given),
  ),
  "a refused create counts as stored": changeCreate(prefixes.log, ({ create }, ...given) =>
    create(...given),
  ),
  "a record replaces that of another server": changeCreate(
    prefixes.generations,
    ({ put }, ...given) => put(...given),
  ),
  // Slots protect nearly all of these: it takes a thousand histories to see one.
  ...(isLong && {
    "a refused record counts as created": changeCreate(
      prefixes.generations,
      ({ create }, ...given) => create(...given),
    ),
  }),
  "a segment is acknowledged before those in front of it": { acknowledgesOutOfOrder: true },
  "the first base is trusted without a look at the log": { trustsFirstBase: true },
  "retention deletes seals": { expires: prefixes.log },
  "retention deletes records": { expires: prefixes.generations },
  "what is confirmed is not written down": { confirmsNothing: true },
  "an earlier state is archived although the archive has gone on": { ignoresIntent: true },
};

test("no acknowledged write is lost, and every loss is named", async () => {
  let acknowledged = 0;
  let generations = 0;
  for (let seed = 1; seed <= HISTORIES; seed += 1) {
    const outcome = await simulate(seed);
    expect([seed, outcome.problems]).toEqual([seed, []]);
    acknowledged += outcome.acknowledged;
    generations += outcome.generations;
  }
  expect(acknowledged).toBeGreaterThan(5 * HISTORIES);
  expect(generations).toBeGreaterThan(1.5 * HISTORIES);
}, 3_600_000);

test.each(Object.entries(mutations))(
  "something is lost if %s",
  async (_what, mutation) => {
    let count = 0;
    for (let isLost = false; !isLost && count < MAX_HISTORIES; count += 1)
      isLost = (await simulate(count + 1, mutation)).problems.length > 0;
    expect(count).toBeLessThan(MAX_HISTORIES);
  },
  300_000,
);
