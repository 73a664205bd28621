/** Text that a person can read: what others have chosen is part of messages, emails and names. */

/** With these, two emails or names of tokens could look the same. In URLs, Bun replaces bytes that are not UTF-8 by U+FFFD. */
export const UNREADABLE =
  /[\s\p{Cc}\p{Cf}\p{Z}\p{Default_Ignorable_Code_Point}\p{Noncharacter_Code_Point}\ufffd]/u;

/** What JSON does not escape. Text that was copied from a web page or a spreadsheet can have such characters. */
const INVISIBLE = new RegExp(`(?! )${UNREADABLE.source}`, "gu");

/** @returns the text as one line, with escapes such as `\u{200b}`: others may have chosen a part of it */
export function escapeInvisible(text: string): string {
  return text.replace(INVISIBLE, (character) => `\\u{${character.codePointAt(0)?.toString(16)}}`);
}

/** @returns the texts for a message: in quotes, separated by commas, with escapes */
export function quoteReadably(...texts: readonly string[]): string {
  return texts.map((text) => escapeInvisible(JSON.stringify(text))).join(", ");
}

/** @returns the text as a record can have it, or empty; databases write `NULL` and `\N` for a value that is missing */
export function cut(text: string, maxLength: number): string {
  if (text === "NULL" || text === "\\N") return "";
  const clean = text.replaceAll("\0", "").toWellFormed().trim();
  return clean.length <= maxLength ? clean : [...clean].slice(0, maxLength).join("");
}
