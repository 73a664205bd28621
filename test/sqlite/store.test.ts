import { afterAll } from "bun:test";
import { openSqlite } from "../../src/sqlite/backend.ts";
import { makeDirectory } from "../directory.ts";
import { storeContract } from "../store.contract.ts";

const directory = makeDirectory();
afterAll(() => directory[Symbol.dispose]());
let opened = 0;

storeContract(
  "sqlite",
  ({ now = () => new Date(), max_pending_writes = 1000, max_unsent_bytes = 2 ** 25 } = {}) => {
    opened += 1;
    const database_url = directory.at(`${opened}.db`);
    return openSqlite({
      database_url,
      max_pending_writes,
      max_unsent_bytes,
      exclusive: true,
      create: true,
      now,
    });
  },
);
