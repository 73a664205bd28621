// Tests of the ports in src, for every database: the test of a database calls `storeContract` with a function that opens
// it.
import { describe } from "bun:test";
import { changesContract } from "./changes.ts";
import { copySourceContract } from "./copy-source.ts";
import { importUpdatesContract } from "./import-updates.ts";
import type { Open } from "./open.ts";
import { recordTextContract } from "./record-text.ts";
import { recordsContract } from "./records.ts";
import { tokensContract } from "./tokens.ts";

/** @param open opens a new, empty database on each call */
export function storeContract(name: string, open: Open): void {
  describe(name, () => {
    recordsContract(open);
    recordTextContract(open);
    tokensContract(open);
    importUpdatesContract(open);
    copySourceContract(open);
    changesContract(open);
  });
}
