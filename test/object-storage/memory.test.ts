import { describe } from "bun:test";
import { objectStorageContract } from "./contract.ts";
import { createMemoryStorage } from "./memory.ts";

describe("storage in memory", () => {
  objectStorageContract(async () => {
    const storage = createMemoryStorage();
    return { storage, other: storage, [Symbol.asyncDispose]: async () => {} };
  });
});
