/** Times of imported records. Other systems write RFC 3339 with any offset and precision. */
import { failField } from "./error.ts";
import { hasMember } from "./import-plan.ts";
import { isTime } from "./schema.ts";

/** Date, time of day, fraction and offset, of which all but the date may be missing. @see RFC 3339 §5.6 */
const FORM =
  /^(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)?)?$/;

/**
 * @returns the time in UTC with milliseconds, of which the rest is cut off; `null` if it does not exist. A leap second
 * becomes the second after it, as in Unix time
 */
function convert(date: string, time: string, fraction: string, offset: string): string | null {
  const isLeap = time.endsWith(":60");
  const seconds = isLeap ? time.replace(/60$/, "59") : time;
  const local = `${date}T${seconds}.${fraction.slice(0, 3).padEnd(3, "0")}`;
  if (!isTime(`${local}Z`)) return null;
  const utc = new Date(`${local}${offset.toUpperCase()}`);
  if (isLeap) utc.setTime(utc.getTime() + 1000);
  const text = utc.toISOString();
  // Leap seconds end a day in UTC. The offset can lead out of the years 0 to 9999.
  return isTime(text) && (!isLeap || text.includes("T00:00:00")) ? text : null;
}

/** @throws {AppError} validation_failed if it is nearly a time. All other texts are returned as they are */
function utcTime(field: string, text: string): string {
  const [, date, time, fraction = "", offset] = FORM.exec(text) ?? [];
  if (date === undefined) return text;
  if (time === undefined) failField(field, "format", "must have a time of day and an offset");
  if (offset === undefined) {
    failField(field, "format", "must have an offset from UTC, such as Z or +01:00");
  }
  return (
    convert(date, time, fraction, offset) ??
    failField(field, "format", "must be a day and a time that exist, in the years 0000 to 9999")
  );
}

/**
 * @returns the record with its times in UTC with milliseconds
 * @throws {AppError} validation_failed if one has no time of day or no offset, or does not exist
 */
export function withUtcTimes(record: unknown): unknown {
  let converted = record;
  for (const field of ["created_at", "updated_at"]) {
    if (!hasMember(converted, field)) continue;
    const time = converted[field];
    if (typeof time !== "string" || isTime(time)) continue;
    converted = { ...converted, [field]: utcTime(field, time) };
  }
  return converted;
}
