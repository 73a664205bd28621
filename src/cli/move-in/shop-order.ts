/** An order of a shop, as it is brought here. */
import { emailKey, isEmail } from "../../base/email.ts";
import { failField } from "../../base/error.ts";
import { cut } from "../../base/readable-text.ts";
import { formatAmount, minorUnits } from "../../domain/currency.ts";
import { ROUNDED_NUMBER } from "../../domain/import-rules.ts";
import { MAX_METADATA_KEYS } from "../../domain/metadata.ts";
import { itemsOf, type Line } from "../../domain/order-lines.ts";
import type { FilePlace } from "../files/report.ts";
import type { Rules } from "./rules.ts";

/** The person is `customer 55`, `email a@b.cd`, `phone 49301234` or, of somebody who says nothing, `guest 727`. */
export type ShopOrder = ReturnType<typeof shopOrder>;
/** The total is what the shop says: the items add up to it. */
export type ShopRecord = ShopOrder["record"];

/** An order in a file. */
export interface Found {
  readonly place: FilePlace;
  /** As it is in the file, for the file of rejected orders. */
  readonly original: unknown;
  /** @returns `null` for what is no order. @throws {AppError} validation_failed */
  convert(): ShopOrder | null;
}

/**
 * What a shop says. The id is empty if a spreadsheet has rounded it, and the time of the last change if the shop does not
 * tell it. The taxes are those that no line has. The texts become metadata, if they are not empty.
 */
interface Given
  extends Record<"id" | "number" | "modified" | "created" | "status" | "currency", string>,
    Record<"account" | "email" | "phone" | "name", string>,
    Record<"total" | "refunded" | "taxes", number> {
  readonly lines: Line[];
  readonly texts: Iterable<readonly [key: string, text: string]>;
}

/** What an earlier run has written into metadata: other keys are those of this service's users. */
export const OWN_KEY: RegExp =
  /^(?:(?:shop|billing|shipping)_.*|customer_note|payment_method|transaction_id|phone|notes|note_attributes|tags)$/;

/** @returns the code here, and amounts of this currency in its minor unit */
export function moneyOf(code: string, { currencies }: Rules) {
  const { currency, factor } = currencies[code] ?? { currency: code, factor: 1 };
  const amountOf = (field: string, text: string) => minorUnits(field, text, currency) * factor;
  return { currency, amountOf };
}

function buyerOf(given: Given, { same }: Rules) {
  const { number, account, name, phone } = given;
  const text = given.email.replaceAll(/\s/g, "");
  const isOwn = text.length <= 254 && text.isWellFormed() && isEmail(text);
  // Anybody can type the placeholder of somebody else.
  const email = isOwn && !/\.invalid$/i.test(text) ? text : "";
  const digits = ROUNDED_NUMBER.test(phone) ? "" : phone.replace(/^00/, "").replaceAll(/\D/g, "");
  // Not what people type who have none.
  const isPhone = /^(?!(\d)\1*$)\d{7,15}$/.test(digits);
  const other = same[account] ?? same[email && emailKey(email)];
  // The own email and name of the person to whom a rule maps the buyer count.
  const buyer = { email, name, isSame: other !== undefined };
  if (other?.includes("@")) return { ...buyer, person: `email ${emailKey(other)}`, email: other };
  if (other || account) return { ...buyer, person: `customer ${other ?? account}` };
  if (email !== "") return { ...buyer, person: `email ${emailKey(email)}` };
  return { ...buyer, person: isPhone ? `phone ${digits}` : `guest ${number}` };
}

/** A refund above the total is a loss of the shop, which no order can have. @throws {AppError} validation_failed */
export function shopOrder(rules: Rules, given: Given) {
  const { id, modified, total, currency, texts, status: name } = given;
  const refunded = Math.min(given.refunded, total);
  const above = given.refunded > total ? formatAmount(given.refunded - total, currency) : "";
  const { [name]: status } = rules.statuses;
  if (status === undefined || !Object.hasOwn(rules.statuses, name))
    return failField("status", "not_allowed", `"${name}" is not in the rule statuses`);
  const buyer = buyerOf(given, rules);
  const own = { ["shop_id"]: id, ["shop_status"]: name, ["shop_person"]: buyer.person };
  const pairs = [...Object.entries(own), ["shop_refund_above_total", above] as const, ...texts]
    .map(([key, text]) => [cut(key, 40), cut(text, 500)] as const)
    .filter(([key, text]) => key && text);
  const metadata = Object.fromEntries(pairs.slice(0, MAX_METADATA_KEYS));
  const reference = rules.prefix + given.number;
  const items = itemsOf(given.lines, total, given.taxes);
  const amounts = { currency, items, total, refunded, status };
  const record = { ...amounts, reference, metadata, created_at: given.created };
  return { id, modified, ...buyer, record };
}
