/** Decides which user each person of the shop is. Two people never become one user. */
import { emailKey } from "../../base/email.ts";
import { fail } from "../../base/error.ts";
import type { BulkStore, ImportOptions } from "../../domain/bulk.ts";
import { createUserParser, type OrderImport, type UserImport } from "../../domain/import-rules.ts";
import { createImportRun } from "../../domain/import-run.ts";
import type { Order } from "../../domain/order.ts";
import type { Store } from "../../domain/store.ts";
import { isErasedEmail, type User } from "../../domain/user.ts";
import type { Report } from "./report.ts";
import type { Rules } from "./rules.ts";
import { type Entry, findBy } from "./scan.ts";
import type { Spool } from "./spool.ts";
import { cut } from "./values.ts";

/** Two users of a batch can exchange their emails. */
const BATCH_USERS = 5000;

export interface Move {
  readonly store: Store;
  readonly rules: Rules;
  readonly spool: Spool;
  readonly report: Report;
  readonly dryRun: boolean;
}

/** @returns a function that imports records of one run */
export function createImporter<Given>(bulk: BulkStore<Given>, dryRun: boolean) {
  const options: ImportOptions = { update: true, keepItems: true, dryRun, run: createImportRun() };
  let line = 0;
  return (records: readonly Given[]) =>
    bulk.import(records, { ...options, lines: records.map(() => ++line) });
}

interface Person {
  readonly key: string;
  /** Of the account; `null` for a guest. */
  readonly reference: string | null;
  /** By time. */
  readonly entries: Entry[];
  /** Those of the newest order that has one. */
  email: string;
  name: string;
  /** `null` if no order needs it. */
  user: Pick<OrderImport, "user_id" | "user_reference" | "user_email"> | null;
}

/** Whether it is new, or of somebody else in the shop than before. */
export const needsUser = ({ here }: Entry): boolean => here === null || here.isOfBuyer === false;

function groupByPerson(entries: readonly Entry[], { prefix }: Rules): Map<string, Person> {
  const people = new Map<string, Person>();
  const own = entries.filter(({ buyer }) => !buyer.isSame);
  // The person's own orders come last, so that their email and name count.
  for (const entry of [...entries.filter(({ buyer }) => buyer.isSame), ...own]) {
    const { key, email, name } = entry.buyer;
    const account = /^account (.+)/.exec(key)?.[1];
    const person = people.getOrInsertComputed(key, () => ({
      ...{ key, reference: account === undefined ? null : prefix + account, entries: [] },
      ...{ email: "", name: "", user: null },
    }));
    person.entries.push(entry);
    person.email = email || person.email;
    person.name = name || person.name;
  }
  return people;
}

/** An address to which no mail can be delivered. Other numbers have other ones. */
function placeholderOf({ key, reference }: Person, { prefix }: Rules): string {
  const [kind, id] = key.split(/ (.*)/);
  const own = kind === "phone" ? `${id}` : (reference ?? `${prefix}${id}`);
  const plain = /^[a-z\d._-]{1,200}$/.test(own) ? own : Bun.SHA256.hash(own, "hex");
  const names: Readonly<Record<string, string>> = { account: "customer", order: "guest" };
  return `${names[`${kind}`] ?? kind}-${plain}@no-email.invalid`;
}

/**
 * An account of two shops has other emails in one file than in another one, or than here from an earlier run.
 * @param user the stored one, if none of its orders is among these; otherwise `null`
 * @throws {AppError} operator
 */
async function requireOneShop(person: Person, user: User | null, { store }: Move): Promise<void> {
  const own = person.entries.filter(({ buyer }) => buyer.email !== "" && !buyer.isSame);
  const byFile = Map.groupBy(own, ({ place }) => `in ${place.file}`);
  const sources = [...byFile].map(([where, some]) => ({
    where,
    emails: new Set(some.map(({ buyer }) => emailKey(buyer.email))),
  }));
  if (user !== null && !user.email.endsWith(".invalid")) {
    const page = await store.orders.list({ limit: 50, offset: 0, user_id: user.id });
    const orders: readonly Order[] = JSON.parse(`[${page.records}]`);
    if (orders.some(({ metadata }) => metadata["shop_id"] !== undefined))
      sources.unshift({ where: `as user ${user.id}`, emails: new Set([emailKey(user.email)]) });
  }
  const [first, ...others] = sources;
  const other = others.find(({ emails }) => first?.emails.isDisjointFrom(emails));
  if (first === undefined || other === undefined) return;
  const [one, two] = [first, other].map(({ where, emails }) => `${[...emails][0]} ${where}`);
  const prefix = 'if these are two shops, move one in with a rule such as {"prefix": "b-"}';
  const same = 'otherwise with one such as {"same": {"EMAIL": "ACCOUNT"}} for the last email';
  fail("operator", `The account ${person.reference} is ${one} and ${two}: ${prefix}, ${same}`);
}

type ImportUsers = ReturnType<typeof createImporter<UserImport>>;

/** A record, and the email that it gets if another user keeps that one. */
type Given = readonly [record: UserImport, otherEmail: string];

/** @returns how many are new */
async function importUsers(all: readonly Given[], importSome: ImportUsers): Promise<number> {
  const again: Given[] = [];
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

/**
 * Brings the users of all people. The import finds them by reference, or by email; but a user can have been merged into
 * another one here, or got another email: then the orders tell who it is.
 * @returns the people by their keys
 * @throws {AppError} operator if an account is of another shop
 */
export async function bringPeople(entries: readonly Entry[], move: Move) {
  const { store, rules, report } = move;
  const people = groupByPerson(entries, rules);
  const all = [...people.values()];
  const accounts = all.filter(({ reference }) => reference !== null);
  const references = accounts.map(({ reference }) => `${reference}`);
  const stored = await findBy<User>(store.users.list, "reference", references);
  const storedOf = ({ reference }: Person) => stored.get(`${reference}`);
  const here = new Set(entries.flatMap(({ here }) => here?.userId ?? []));
  const parse = createUserParser();
  const importSome = createImporter(store.bulk.users, move.dryRun);
  /** The accounts by their emails, of which each has one. */
  const holders = new Map<string, Person>();

  /** Its user is that of its orders, or else this one, if an order needs it. @returns whether it is this one */
  function choose(person: Person, user: Person["user"], isStored: boolean): boolean {
    const kept = person.entries.findLast((entry) => entry.here?.isOfBuyer)?.here;
    if (kept && !isStored) person.user = { user_id: kept.userId };
    else if (isStored || person.entries.some(needsUser)) person.user = user;
    return person.user === user;
  }

  function recordOf(person: Person, email: string): UserImport {
    const { reference } = person;
    const name = cut(person.name, 200);
    return parse({ email, ...(reference !== null && { reference }), ...(name && { name }) });
  }

  // An email that two accounts have is that of the newest order, unless another one has it here.
  const newest = ({ entries }: Person) => entries.at(-1)?.created_at ?? "";
  for (const person of accounts.toSorted((one, other) => (newest(one) > newest(other) ? -1 : 1))) {
    const user = storedOf(person) ?? null;
    await requireOneShop(person, user && here.has(user.id) ? null : user, move);
    if (person.email !== "" && !isErasedEmail(user?.email ?? ""))
      holders.getOrInsert(emailKey(person.email), person);
  }
  const given = accounts.flatMap((person): Given[] => {
    const user = storedOf(person);
    const other = user?.email ?? placeholderOf(person, rules);
    const isHolder = holders.get(emailKey(person.email)) === person;
    const isOwn = choose(person, { user_reference: `${person.reference}` }, user !== undefined);
    return isOwn ? [[recordOf(person, isHolder ? person.email : other), other]] : [];
  });
  report.counts.users += await importUsers(given, importSome);
  // Afterwards: a guest can have an email that an account has given up.
  const guests = all.flatMap((person): Given[] => {
    if (person.reference !== null) return [];
    const email = person.email || placeholderOf(person, rules);
    const isNew = choose(person, { user_email: email }, false);
    // An account that has the email is the same user, whose name is that of the account.
    const isHeld = Boolean(holders.get(emailKey(email))?.user);
    return isNew && !isHeld ? [[recordOf(person, email), email]] : [];
  });
  report.counts.users += await importUsers(guests, importSome);
  return people;
}
