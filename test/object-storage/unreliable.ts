import { AppError } from "../../src/base/error.ts";
import type { ObjectStorage } from "../../src/domain/object-storage.ts";
import { wrapStorage } from "./memory.ts";

/**
 * Storage whose operations can be made to fail, before (`isAway`) or after (`isLost`) they have done their work.
 * @param prefix of the keys that are concerned
 */
export function makeUnreliable(storage: ObjectStorage, prefix = "") {
  const state = { isAway: false, isLost: false };
  const unreliable = wrapStorage(storage, async (call, operation, key) => {
    if (operation === "remove" || !key.startsWith(prefix)) return call();
    if (state.isAway) throw new AppError("unavailable", "away");
    const result = await call();
    if (state.isLost) throw new AppError("unavailable", "lost");
    return result;
  });
  return { state, unreliable };
}
