/** Email addresses. @see https://html.spec.whatwg.org/multipage/input.html#valid-e-mail-address */
import { domainToASCII, domainToUnicode } from "node:url";
import { UNREADABLE } from "./readable-text.ts";

/** A local part, and the characters that a domain can have before it is converted. @see RFC 6531 */
const PARTS = /^[\w.!#$%&'*+/=?^`{|}~\u0080-\u{10ffff}-]+@[a-z\d.\u0080-\u{10ffff}-]+$/iu;
const LABEL = String.raw`[a-z\d](?:[a-z\d-]{0,61}[a-z\d])?`;
const ASCII_DOMAIN = new RegExp(String.raw`@(?:${LABEL}\.)+${LABEL}$`);
/** Text in which a domain is its own ASCII form. */
const PLAIN = /^(?!.*xn--)[\0-\x7f]*$/;

/** @returns the domain as in DNS (UTS 46, non-transitional); empty if it has no such form. @param domain in lower case */
function asciiDomain(domain: string): string {
  // A last label that is no number, so that `1.2.3` is not read as an IPv4 address.
  const unicode = domainToUnicode(`${domain}.x`).replaceAll("ς", "σ");
  return domainToASCII(unicode).slice(0, -2);
}

/** @returns what identifies the mailbox: lower case (full Unicode, no locale) with `σ` for `ς`, in NFC, the domain in ASCII */
export function emailKey(email: string): string {
  const lower = email.toLowerCase();
  if (PLAIN.test(lower)) return lower;
  // The lower case of a capital sigma depends on its place in a word.
  const folded = lower.replaceAll("ς", "σ").normalize("NFC");
  const domain = folded.indexOf("@") + 1;
  return folded.slice(0, domain) + asciiDomain(folded.slice(domain));
}

/** Whether the text is an email as in browsers, or with letters of RFC 6531, without invisible characters. */
export function isEmail(text: string): boolean {
  return !UNREADABLE.test(text) && PARTS.test(text) && ASCII_DOMAIN.test(emailKey(text));
}
