/** Times of other systems and of people, in RFC 3339 with any offset and precision. */
import { hasMember } from "../base/json.ts";
import { isTime } from "../base/schema.ts";

/** Date, time of day, fraction and offset. @see RFC 3339 §5.6 */
const FORM =
  /^(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?([Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)$/;

/** @returns the time in UTC with milliseconds; `null` if the text has no offset, or is no time that exists */
export function utcOf(text: string): string | null {
  const [, date, time = "", fraction = "", offset] = FORM.exec(text) ?? [];
  if (offset === undefined) return null;
  // A leap second counts as the second before it.
  const local = `${date}T${time.replace(/60$/, "59")}.${fraction.slice(0, 3).padEnd(3, "0")}`;
  const utc = isTime(`${local}Z`) ? new Date(local + offset.toUpperCase()).toISOString() : "";
  // The offset can lead out of the years 0 to 9999.
  return isTime(utc) ? utc : null;
}

/** @returns the record with its times in UTC with milliseconds. Other text is unchanged */
export function withUtcTimes(record: unknown): unknown {
  return ["created_at", "updated_at"].reduce((converted, field) => {
    const time = hasMember(converted, field) ? converted[field] : null;
    if (typeof time !== "string" || isTime(time)) return converted;
    return { ...(converted as object), [field]: utcOf(time) ?? time };
  }, record);
}
