import { AppError } from "../../src/base/error.ts";
import type { ObjectStorage } from "../../src/domain/object-storage.ts";

/**
 * Storage whose operations can be made to fail, before (`isAway`) or after (`isLost`) they have done their work.
 * @param prefix of the keys that are concerned
 */
export function makeUnreliable(storage: ObjectStorage, prefix = "") {
  const state = { isAway: false, isLost: false };
  const guard = <Given extends [string, ...unknown[]], Result>(
    work: (...args: Given) => Promise<Result>,
  ) => {
    return async (...args: Given) => {
      if (!args[0].startsWith(prefix)) return await work(...args);
      if (state.isAway) throw new AppError("unavailable", "away");
      const result = await work(...args);
      if (state.isLost) throw new AppError("unavailable", "lost");
      return result;
    };
  };
  const unreliable: ObjectStorage = {
    ...storage,
    get: guard(storage.get),
    put: guard(storage.put),
    create: guard(storage.create),
    list: guard(storage.list),
  };
  return { state, unreliable };
}
