/** Times of other systems and of people, in RFC 3339 with any offset and precision. */
import { failField } from "../base/error.ts";
import { hasMember } from "../base/json.ts";
import { isTime } from "../base/schema.ts";

/** Date, time of day, fraction and offset. @see RFC 3339 §5.6 */
const FORM =
  /^(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/;

const LAST_MS = Date.parse("9999-12-31T23:59:59.999Z");

/** @returns the time in UTC with nanoseconds; `null` if the text has no offset, or is not a time that exists */
export function exactUtcOf(text: string): string | null {
  const [, date, time = "", fraction = "", offset] = FORM.exec(text) ?? [];
  if (offset === undefined) return null;
  const digits = fraction.padEnd(9, "0");
  // A leap second counts as the second before it.
  const local = `${date}T${time.replace(/60$/, "59")}.${digits.slice(0, 3)}`;
  const utc = isTime(`${local}Z`) ? new Date(local + offset.toUpperCase()).toISOString() : "";
  // The offset can lead out of the years 0 to 9999.
  return isTime(utc) ? utc.replace("Z", `${digits.slice(3)}Z`) : null;
}

/** @returns the first time with milliseconds that is not before this one. @param exact as returned by {@link exactUtcOf} */
export function roundUp(exact: string): string {
  const ms = Date.parse(`${exact.slice(0, 23)}Z`);
  return new Date(Math.min(exact.endsWith("000000Z") ? ms : ms + 1, LAST_MS)).toISOString();
}

/** @returns the record with its times in UTC with milliseconds, rounded down. Other text is unchanged */
export function withUtcTimes(record: unknown): unknown {
  return ["created_at", "updated_at"].reduce((converted, field) => {
    const time = hasMember(converted, field) ? converted[field] : null;
    if (typeof time !== "string" || isTime(time)) return converted;
    const exact = exactUtcOf(time);
    return exact === null
      ? converted
      : { ...(converted as object), [field]: `${exact.slice(0, 23)}Z` };
  }, record);
}

const LOOSE_FORM = /^(\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?) ?(Z|UTC|[+-]\d\d:?\d\d)?$/;

/** Of shops. @param zone of a time without an offset; empty if that is an error. @throws {AppError} validation_failed */
export function readTime(field: string, text: string, zone: string): string {
  const [, local = "", given = zone] = LOOSE_FORM.exec(text) ?? [];
  try {
    const zoneOf = given === "Z" ? "UTC" : given;
    const time = Temporal.PlainDateTime.from(local).toZonedDateTime(zoneOf);
    return time.toInstant().toString({ fractionalSecondDigits: 3 });
  } catch (error) {
    // There is no zone, or no such day.
    if (!(error instanceof RangeError)) throw error;
    const isWithout = local !== "" && given === "";
    const reason = isWithout ? "the rule time_zone is not set" : "has a spreadsheet rewritten it?";
    const wrong = `must be a time like 2026-11-20 18:57:03 +0100, not ${JSON.stringify(text)}`;
    return failField(field, "format", `${wrong}: ${reason}`);
  }
}
