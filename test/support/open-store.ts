import type { Store, StoreOptions } from "../../src/domain/store.ts";
import { backendOf } from "../../src/main.ts";

/** Options of a server's store, with limits that no test reaches. */
export const storeOptions: Omit<StoreOptions, "databaseUrl"> = {
  mode: "serve",
  create: true,
  now: () => new Date(),
};

/** On a busy machine, a connection can take longer than the 5 s that it has: then another one is opened. */
export function untilConnected<Result>(open: () => Promise<Result>, left = 5): Promise<Result> {
  return open().catch((error) => {
    if (left === 0 || !/: no response from the server$/.test(`${error}`)) throw error;
    return untilConnected(open, left - 1);
  });
}

/** Opens a store as a command does, which a server may have open at the same time, and closes it after `work`. */
export async function withStore<Result>(
  databaseUrl: string,
  work: (store: Store) => Promise<Result>,
  options: Partial<StoreOptions> = {},
): Promise<Result> {
  const all = { ...storeOptions, mode: "write", databaseUrl, ...options } as const;
  const store = await untilConnected(() => backendOf(databaseUrl).open(all));
  try {
    return await work(store);
  } finally {
    await store.close();
  }
}
