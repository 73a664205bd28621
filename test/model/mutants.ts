/** Planted faults, each of which breaks a rule: a model that does not notice them proves nothing. */
import { AppError } from "../../src/base/error.ts";
import type { ObjectStorage } from "../../src/domain/object-storage.ts";
import { decodeJson, encodeJson } from "../../src/sqlite/archive/format.ts";
import type { Copy, DatabaseFiles, OpenDatabase } from "../../src/sqlite/archive/machine.ts";
import type { Mutant } from "./world.ts";

type Create = ObjectStorage["create"];

const textOf = (body: Uint8Array) => new TextDecoder().decode(body);

/** @param isMeant which objects are created in another way */
function changeCreate(
  isMeant: (key: string, body: string) => boolean,
  create: (storage: ObjectStorage, ...given: Parameters<Create>) => Promise<unknown>,
): Mutant {
  return {
    storage: (storage) => ({
      ...storage,
      async create(key, body) {
        if (!isMeant(key, textOf(body))) return storage.create(key, body);
        return (await create(storage, key, body)) !== false;
      },
    }),
  };
}

const changeFiles = (change: (files: DatabaseFiles) => Partial<DatabaseFiles>): Mutant => ({
  files: (files) => ({ ...files, ...change(files) }),
});

const changeDatabase = (change: (database: OpenDatabase) => Partial<OpenDatabase>): Mutant =>
  changeFiles((files) => ({
    open(descriptors) {
      const database = files.open(descriptors);
      return { ...database, ...change(database) };
    },
  }));

const changeCopy = (change: (copy: Copy) => Partial<Copy>): Mutant =>
  changeDatabase((database) => ({
    openCopy(start) {
      const copy = database.openCopy(start);
      return { ...copy, ...change(copy) };
    },
  }));

const isSlot = (key: string) => key.startsWith("log/");
const isSeal = (key: string, body: string) => isSlot(key) && /"kind":"(seal|closed)"/.test(body);
const isRecord = (key: string) => key.startsWith("generations/");

async function createLater({ get, put }: ObjectStorage, ...[key, body]: Parameters<Create>) {
  if ((await get(key)) !== null) return false;
  await put(key, body);
  return true;
}

const replace = ({ put }: ObjectStorage, ...given: Parameters<Create>) => put(...given);

export const changeBeat = (change: object): Mutant => ({
  storage: (storage) => ({
    ...storage,
    put: (key, body) =>
      key.startsWith("heartbeats/")
        ? storage.put(key, encodeJson({ ...decodeJson<object>(key, body), ...change }))
        : storage.put(key, body),
  }),
});

function readOneByOne(storage: ObjectStorage): ObjectStorage {
  let last: Promise<unknown> = Promise.resolve();
  return {
    ...storage,
    get(...given) {
      if (!isSlot(given[0])) return storage.get(...given);
      const next = last.then(() => storage.get(...given));
      last = next.catch(() => {});
      return next;
    },
  };
}

function everyThird(): () => boolean {
  let calls = 0;
  return () => ++calls % 3 === 0;
}

const isDropped = everyThird();

const onFailedGet = (answer: (error: Error) => null): Mutant => ({
  storage: (storage) => ({ ...storage, get: (...given) => storage.get(...given).catch(answer) }),
});

export const withoutProgress = changeDatabase(({ openProgress }) => ({
  openProgress: () => ({ ...openProgress(), lacks: () => false }),
}));

export const mutants: Readonly<Record<string, Mutant>> = {
  "slots are not created atomically": changeCreate(isSlot, createLater),
  "records are not created atomically": changeCreate(isRecord, createLater),
  "a slot replaces what is there": changeCreate(isSlot, replace),
  "a refused slot counts as stored": changeCreate(isSlot, async ({ create }, ...given) => {
    await create(...given);
  }),
  "a record replaces that of another server": changeCreate(isRecord, replace),
  "seals are not stored": changeCreate(isSeal, async () => {}),
  "segments are not stored, now and then": changeCreate(
    (key, body) => isSlot(key) && !isSeal(key, body) && isDropped(),
    async () => {},
  ),
  "lists lack the newest object": {
    storage: (storage) => ({
      ...storage,
      list: async (prefix, ...given) => {
        const found = await storage.list(prefix, ...given);
        return prefix.startsWith("probe/") || found.length < 2 ? found : found.slice(0, -1);
      },
    }),
  },
  "U35: a server whose disk fails does not hand over": { server: { hidesFailures: true } },
  "U36: a new server that was slower keeps its database": { server: { keepsNew: true } },
  "U37: an opening that has failed ends the program": { server: { givesUp: true } },
  "U38: a copy reads one segment after the other": { storage: readOneByOne },
  "U39: a request that fails is not repeated, and ends an opening": {
    server: { givesUp: true },
    ...onFailedGet(({ message }) => {
      throw new AppError("operator", message);
    }),
  },
  "a read that fails finds nothing": onFailedGet(() => null),
  "a server does not say what it waits for": { server: { isMute: true } },
  "a copy is not served for long": { server: { hidesCopies: true } },
  "a copy says that it is older than it is": { server: { isOld: true } },
  "the marker has no names": changeFiles(({ writeMarker }) => ({
    writeMarker: (marker) => writeMarker({ ...marker, names: [] }),
  })),
  "the WAL of a copy is not rebuilt": changeFiles(({ beginWal }) => ({
    beginWal: () => ({ ...beginWal(), publish() {} }),
  })),
  "any position is in the WAL": changeDatabase(() => ({ continuesAt: () => true })),
  "the end is noted although the archive lacks it": changeDatabase(({ pinWal }) => ({
    pinWal() {
      const pin = pinWal();
      return { ...pin, complete: (_, work) => pin.complete(() => true, work) };
    },
  })),
  "a copy skips segments": changeCopy(({ append }) => {
    const isSkipped = everyThird();
    return { append: (...given) => isSkipped() || append(...given) };
  }),
  "a copy is not shown": changeCopy(() => ({ show() {} })),
  "the WAL of a copy is not emptied": changeCopy(() => ({ truncateWal: () => null })),
  "writes are acknowledged before the archive has them": { server: { isEarly: true } },
  "a repeated write is made again": { server: { repeats: true } },
  "reads do not say how old they are": { server: { isAgeless: true } },
  "a database that has diverged is not set aside": { server: { keepsDiverged: true } },
  "the clock on the wall measures intervals": {
    machine: (machine) => ({ ...machine, monotonicMs: machine.nowMs }),
  },
  "only the disk counts": { settings: { commit: "async" } },
  "no server takes over": { settings: { takeoverMs: 300_000 } },
};
