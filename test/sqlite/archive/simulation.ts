/**
 * Servers that share an archive, on a network that loses, delays and repeats requests. They are slow, they are killed,
 * and they start again: on their old disk, on an empty one, or on one to which an earlier state was restored.
 */

import { AppError } from "../../../src/base/error.ts";
import type { ObjectStorage } from "../../../src/domain/object-storage.ts";
import { slotKey } from "../../../src/sqlite/archive/keys.ts";
import type { History } from "../../../src/sqlite/archive/read/catalog.ts";
import { makeRandom } from "../../support/random.ts";
import { createNetwork, type Process } from "../../support/simulated-network.ts";
import { promoteTo } from "./archived.ts";
import { type Disk, restoreOver, serve } from "./simulated-server.ts";
import { createWorld, type Mutation, type World } from "./simulated-world.ts";

export interface Outcome {
  /** What is lost, and losses that a restore has reported although nothing is. */
  readonly problems: readonly string[];
  readonly acknowledged: number;
  readonly generations: number;
}

const MAX_STEPS = 600;

/** Restores the archive, perhaps while servers write to it. @returns what was restored */
async function check(world: World, storage: ObjectStorage) {
  const before = [...world.acknowledged];
  const restored = await world.restore(storage);
  const { loss, words } = restored;
  const lost = before.filter((word) => world.acknowledged.has(word) && !words.includes(word));
  if (loss !== null || lost.length > 0) world.report(loss ?? `lost: ${lost.join()}`);
  return restored;
}

/** Ends the log while its server writes to it. The process may be killed at any time. */
async function promoteAny(storage: ObjectStorage): Promise<void> {
  for (let isUnknown = true; isUnknown; ) {
    const outcome = await promoteTo(storage, 0).catch((error) => error);
    isUnknown = outcome instanceof AppError && outcome.code === "unavailable";
  }
}

/** Loses a segment that is known to have been stored: by a later one, or because the log is sealed. */
async function checkLoss(world: World, history: History, words: readonly string[]): Promise<void> {
  const { random, storage, marks } = world;
  const lost = history.segments[random(history.segments.length)];
  if (lost === undefined) return;
  const isOpen = history.tail?.isSealed === false && lost.generation === history.lastGeneration;
  // What was stored after that may be taken for the end.
  if (isOpen && lost.number > (marks.get(lost.generation) ?? 0)) return;
  await storage.remove([slotKey(lost)]);
  const damaged = await world.restore(storage);
  // An older base may not need it.
  const isComplete = damaged.words.length === words.length;
  if (damaged.loss === null && !isComplete) world.report(`taken for the end: ${slotKey(lost)}`);
}

export async function simulate(seed: number, mutation: Mutation = {}): Promise<Outcome> {
  const random = makeRandom(Math.imul(seed, 2_654_435_761) | 1);
  const world = createWorld(random, mutation);
  const network = createNetwork(world.storage, random);
  const disks: Disk[] = [];
  const processes: Process[] = [];

  function start(): void {
    const process = network.join(random(4) === 0);
    if (random(5) === 0) return void check(world, process.storage);
    if (random(8) === 0) return void promoteAny(process.storage);
    processes.push(process);
    const old = disks[random(2 * disks.length + 1)];
    const disk: Disk = { words: [], names: [], intent: null, ...old };
    disks.push(disk);
    const restored =
      old === undefined && restoreOver(world, process.storage, disk, random(3) === 0);
    void Promise.resolve(restored).then(() => serve(world, process, disk));
  }

  const starts = 3 + random(5);
  for (let step = 0; step < MAX_STEPS; step += 1) {
    world.tick();
    if (processes.length < starts && random(40) === 0) start();
    if (random(150) === 0) processes[random(processes.length)]?.kill();
    if ((await network.step()) || processes.length < starts) continue;
    break;
  }
  const { history, words } = await check(world, world.storage);
  if (history !== null) await checkLoss(world, history, words);
  const generations = (await world.storage.list("generations/")).length;
  return { problems: world.problems, acknowledged: world.acknowledgements(), generations };
}
