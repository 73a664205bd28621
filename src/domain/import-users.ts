/** Imports users of another system, in which two can have one email. */
import type { createImporter } from "./bulk.ts";
import type { UserImport } from "./import-rules.ts";

/** Two users of a batch can exchange their emails. */
const BATCH_USERS = 5000;

/** A record, and the email that it gets if another user keeps that one. */
export type UserGiven = readonly [record: UserImport, otherEmail: string];

/** @returns how many are new */
export async function importUsers(
  all: readonly UserGiven[],
  importSome: ReturnType<typeof createImporter<UserImport>>,
): Promise<number> {
  const again: UserGiven[] = [];
  let created = 0;
  for (let start = 0; start < all.length; start += BATCH_USERS) {
    const some = all.slice(start, start + BATCH_USERS);
    const results = await importSome(some.map(([record]) => record));
    created += results.filter(({ outcome }) => outcome === "created").length;
    for (const [index, [record, email]] of some.entries())
      if (results[index]?.outcome === "rejected" && email !== record.email)
        again.push([{ ...record, email }, email]);
  }
  return again.length === 0 ? created : created + (await importUsers(again, importSome));
}
