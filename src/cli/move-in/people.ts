/** Decides which user each person of the shop is. Two people never become one user. */
import { emailKey } from "../../base/email.ts";
import { fail } from "../../base/error.ts";
import { cut } from "../../base/readable-text.ts";
import { createImporter } from "../../domain/bulk.ts";
import { createUserParser, type OrderImport } from "../../domain/import-rules.ts";
import { importUsers, type UserGiven } from "../../domain/import-users.ts";
import type { Order } from "../../domain/order.ts";
import { findAll } from "../../domain/record-store.ts";
import { isErasedEmail, placeholderEmail, type User } from "../../domain/user.ts";
import type { Entry, Move } from "./orders.ts";
import type { Rules } from "./rules.ts";

interface Person {
  readonly key: string;
  /** Of the account; `null` for a guest. */
  readonly reference: string | null;
  /** By time, with the person's own orders last. */
  readonly entries: Entry[];
  /** Those of the last order that has one. */
  readonly email: string;
  readonly name: string;
  /** `null` if no order needs it. */
  user: Pick<OrderImport, "user_id" | "user_reference" | "user_email"> | null;
}

function groupByPerson(entries: readonly Entry[], { prefix }: Rules): Map<string, Person> {
  const ownLast = entries.toSorted((one, other) => Number(other.isSame) - Number(one.isSame));
  const byKey = Map.groupBy(ownLast, ({ person }) => person);
  const people = [...byKey].map(([key, entries]) => {
    const [, account] = /^customer (.+)/.exec(key) ?? [];
    const reference = account === undefined ? null : prefix + account;
    const last = (field: "email" | "name") => entries.findLast((it) => it[field])?.[field] ?? "";
    return { key, reference, entries, email: last("email"), name: last("name"), user: null };
  });
  return new Map(people.map((person) => [person.key, person]));
}

/** Other numbers have other ones. */
function placeholderOf({ key, reference }: Person, { prefix }: Rules): string {
  const [kind = "", id] = key.split(/ (.*)/);
  const own = kind === "phone" ? `${id}` : (reference ?? `${prefix}${id}`);
  return placeholderEmail(kind, own);
}

/**
 * An account of two shops has other emails in one file than in another one, or than here from an earlier run.
 * @param user the stored one, if none of its orders is among these; otherwise `null`
 * @throws {AppError} operator
 */
async function requireOneShop(person: Person, user: User | null, { store }: Move): Promise<void> {
  const sources = new Map<string, Set<string>>();
  if (user !== null && !user.email.endsWith(".invalid")) {
    const page = await store.orders.list({ limit: 50, offset: 0, user_id: user.id });
    const orders: readonly Order[] = JSON.parse(`[${page.records}]`);
    if (orders.some(({ metadata }) => metadata["shop_id"] !== undefined))
      sources.set(`as user ${user.id}`, new Set([emailKey(user.email)]));
  }
  for (const { email, isSame, place } of person.entries)
    if (email !== "" && !isSame)
      sources.getOrInsertComputed(`in ${place.file}`, () => new Set()).add(emailKey(email));
  const [first, ...others] = sources;
  const other = others.find(([, emails]) => first?.[1].isDisjointFrom(emails));
  if (first === undefined || other === undefined) return;
  const [one, two] = [first, other].map(([where, [email]]) => `${email} ${where}`);
  const prefix = 'if these are two shops, move one in with a rule such as {"prefix": "b-"}';
  const same = 'otherwise with one such as {"same": {"EMAIL": "ACCOUNT"}} for the last email';
  fail("operator", `The account ${person.reference} is ${one} and ${two}: ${prefix}, ${same}`);
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
  const { accounts = [], guests = [] } = Object.groupBy(people.values(), ({ reference }) =>
    reference === null ? "guests" : "accounts",
  );
  const stored = await findAll<User>(store.users.list, accounts);
  const here = new Set(entries.map((entry) => entry.here));
  const parse = createUserParser();
  const importSome = createImporter(store.bulk.users, { update: true, dryRun: move.dryRun });

  // An email that two accounts have is that of the newest order, unless another one has it here.
  const holders = new Map<string, Person>();
  const newest = ({ entries }: Person) => entries.at(-1)?.created_at ?? "";
  for (const person of accounts.toSorted((one, other) => (newest(one) > newest(other) ? -1 : 1))) {
    const user = stored.get(`${person.reference}`);
    await requireOneShop(person, user && !here.has(user.id) ? user : null, move);
    if (person.email !== "" && !isErasedEmail(user?.email ?? ""))
      holders.getOrInsert(emailKey(person.email), person);
  }

  function recordOf(person: Person): UserGiven[] {
    const { reference, entries } = person;
    const user = reference === null ? undefined : stored.get(reference);
    const kept = entries.findLast(({ isOfBuyer }) => isOfBuyer)?.here ?? null;
    if (kept !== null && !user) person.user = { user_id: kept };
    const isNeeded = kept === null && entries.some(({ isOfBuyer }) => isOfBuyer === false);
    if (!user && !isNeeded) return [];
    const holder = holders.get(emailKey(person.email));
    const other = user?.email ?? placeholderOf(person, rules);
    const isOwn = person.email !== "" && (reference === null || holder === person);
    const email = isOwn ? person.email : other;
    person.user = reference === null ? { user_email: email } : { user_reference: reference };
    // A guest with the email of an account is the same user, whose name is that of the account.
    if (reference === null && holder?.user) return [];
    const name = cut(person.name, 200);
    const record = parse({ email, ...(reference && { reference }), ...(name && { name }) });
    return [[record, reference === null ? email : other]];
  }
  // A guest can have an email that an account has given up.
  for (const some of [accounts, guests])
    report.counts.users += await importUsers(some.flatMap(recordOf), importSome);
  return people;
}
