/** Values of a shop: texts, amounts and times as shops and spreadsheets write them. */
import { failField } from "../../base/error.ts";

/** By what ISO 4217 says. */
function decimalsOf(currency: string): number {
  if (/BIF|CLP|DJF|GNF|ISK|JPY|KMF|KRW|PYG|RWF|UGX|UYI|VND|VUV|XAF|XOF|XPF/.test(currency))
    return 0;
  if (/BHD|IQD|JOD|KWD|LYD|OMR|TND/.test(currency)) return 3;
  return /CLF|UYW/.test(currency) ? 4 : 2;
}

/** With a comma before two digits at most: spreadsheets of many countries. */
const AMOUNT = /^(-?)(\d*)(?:\.(\d*)|,(\d{1,2}))?$/;

/**
 * Exact, other than a product of floating-point numbers. It rounds half away from zero.
 * @param text empty for 0
 * @returns the amount in the minor unit of the currency: 1999 for 19.99 EUR, 1999 for 1999 JPY
 */
export function minorUnits(field: string, text: string, currency: string): number {
  const [, sign, whole, dot = "", comma = dot] = AMOUNT.exec(text) ?? [];
  const wrong = `must be an amount like 1234.50, not ${JSON.stringify(text)}`;
  if (sign === undefined) return failField(field, "format", wrong);
  const decimals = decimalsOf(currency);
  const digits = `${whole}${comma.slice(0, decimals).padEnd(decimals, "0")}`;
  const size = Number(digits) + Number(Number(comma[decimals] ?? 0) >= 5);
  return size === 0 || sign === "" ? size : -size;
}

/** @returns e.g. `19.99` for 1999 */
export function formatAmount(amount: number, currency: string): string {
  const decimals = decimalsOf(currency);
  const digits = `${Math.abs(amount)}`.padStart(decimals + 1, "0");
  const point = digits.length - decimals;
  const fraction = decimals === 0 ? "" : `.${digits.slice(point)}`;
  return `${amount < 0 ? "-" : ""}${digits.slice(0, point)}${fraction}`;
}

/** Those that WordPress writes, and letters that old shops have. */
const ENTITIES: ReadonlyMap<string, string> = new Map(
  "amp& lt< gt> quot\" apos' nbsp\u{a0} ndash– mdash— hellip… lsquo‘ rsquo’ ldquo“ rdquo” laquo« raquo» euro€ pound£ copy© reg® trade™ auml\u00e4 ouml\u00f6 uuml\u00fc Auml\u00c4 Ouml\u00d6 Uuml\u00dc szlig\u00df agrave\u00e0 eacute\u00e9 egrave\u00e8 ccedil\u00e7 ntilde\u00f1"
    .split(" ")
    .map((pair) => [pair.slice(0, -1), pair.slice(-1)] as const),
);

/** Decodes once: what a person wrote as `&amp;` stays. An entity that is not known stays as well. */
export function decodeEntities(text: string): string {
  return text.replaceAll(/&(?:#(\d{1,7})|#x([\da-f]{1,6})|(\w+));/gi, (entity, ten, hex, name) => {
    if (name !== undefined) return ENTITIES.get(name) ?? entity;
    const code = Number.parseInt(ten ?? hex, ten === undefined ? 16 : 10);
    return code <= 0x10ffff ? String.fromCodePoint(code) : entity;
  });
}

/** @returns the text as a record can have it, or empty; databases write `NULL` and `\N` for a value that is missing */
export function cut(text: string, maxLength: number): string {
  if (text === "NULL" || text === "\\N") return "";
  const clean = text.replaceAll("\0", "").toWellFormed().trim();
  return clean.length <= maxLength ? clean : [...clean].slice(0, maxLength).join("");
}

/** What spreadsheets make of a number of more than 11 digits, which is none any more. */
export function isRounded(text: string): boolean {
  return /^\d(?:[.,]\d+)?E\+\d+$/i.test(text);
}

const TIME = /^(\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?) ?(Z|UTC|[+-]\d\d:?\d\d)?$/;

/**
 * @param zone of a time that has no offset; empty if that is an error
 * @param example how the shop writes times
 */
export function timeOf(field: string, text: string, zone: string, example: string): string {
  const [, local = "", given = zone] = TIME.exec(text) ?? [];
  try {
    const time = Temporal.PlainDateTime.from(local).toZonedDateTime(given.replace("Z", "UTC"));
    return time.toInstant().toString({ fractionalSecondDigits: 3 });
  } catch (error) {
    // There is no zone, or no such day.
    if (!(error instanceof RangeError)) throw error;
  }
  const isWithout = local !== "" && given === "";
  const hint = isWithout
    ? "the rule time_zone is not set"
    : "probably a spreadsheet has rewritten it";
  const wrong = `must be a time like ${example}, not ${JSON.stringify(text)}: ${hint}`;
  return failField(field, "format", wrong);
}

/** A member of JSON that others have written: any value is possible. */
export type Members = Readonly<Record<string, unknown>>;

export function textIn(members: Members, name: string): string {
  const { [name]: value } = members;
  return typeof value === "string" || typeof value === "number" ? `${value}`.trim() : "";
}

export function membersIn(members: Members, name: string): Members {
  const { [name]: value } = members;
  return typeof value === "object" && value !== null ? (value as Members) : {};
}

export function listIn(members: Members, name: string): readonly Members[] {
  const values = Object.values(membersIn(members, name));
  return values.filter((value) => typeof value === "object" && value !== null) as Members[];
}
