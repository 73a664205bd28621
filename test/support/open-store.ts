import type { Store, StoreOptions } from "../../src/domain/store.ts";
import { backendOf } from "../../src/main.ts";

/** Options of a server's store, with limits that no test reaches. */
export const storeOptions: Omit<StoreOptions, "databaseUrl"> = {
  mode: "serve",
  create: true,
  now: () => new Date(),
};

/** Opens a store as a command does, which a server may have open at the same time, and closes it after `work`. */
export async function withStore<Result>(
  databaseUrl: string,
  work: (store: Store) => Promise<Result>,
  options: Partial<StoreOptions> = {},
): Promise<Result> {
  const store = await backendOf(databaseUrl).open({
    ...storeOptions,
    mode: "write",
    databaseUrl,
    ...options,
  });
  try {
    return await work(store);
  } finally {
    await store.close();
  }
}
