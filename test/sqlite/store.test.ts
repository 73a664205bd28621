import { afterAll } from "bun:test";
import { openSqlite } from "../../src/sqlite/open.ts";
import { makeFolder } from "../folder.ts";
import { storeContract } from "../store.contract.ts";

const folder = makeFolder();
afterAll(() => folder[Symbol.dispose]());
let opened = 0;

storeContract(
  "sqlite",
  ({ now = () => new Date(), max_pending_writes = 1000, max_unsent_bytes = 2 ** 25 } = {}) => {
    opened += 1;
    const database_url = folder.at(`${opened}.db`);
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
