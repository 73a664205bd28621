import { afterAll } from "bun:test";
import { makeDirectory } from "../directory.ts";
import { storeContract } from "../store.contract.ts";
import { openDatabase } from "./open.ts";

const directory = makeDirectory();
afterAll(() => directory[Symbol.dispose]());
let opened = 0;

storeContract("sqlite", (options) => {
  opened += 1;
  return openDatabase(directory.at(`${opened}.db`), options);
});
