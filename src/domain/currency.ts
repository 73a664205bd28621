import { failField } from "../base/error.ts";

/**
 * The codes of ISO 4217 as of 2026-01-01: List One, then those of List Three that were dropped since 2000, which old
 * orders have. Never remove one: its orders could not be imported again. @see https://www.six-group.com
 */
export const currencies: readonly string[] = `
AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BHD BIF BMD BND BOB BOV BRL BSD BTN BWP BYN BZD
CAD CDF CHE CHF CHW CLF CLP CNY COP COU CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB EUR FJD FKP
GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY KES KGS KHR
KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN
MXV MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF SAR SBD
SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS UAH UGX
USD USN UYI UYU UYW UZS VED VES VND VUV WST XAD XAF XAG XAU XBA XBB XBC XBD XCD XCG XDR XOF XPD
XPF XPT XSU XTS XUA XXX YER ZAR ZMW ZWG
ADP AFA ANG AON AOR ATS AYM AZM BEF BGL BGN BYB BYR CHC CSD CUC CYP DEM ECS ECV EEK ESP FIM FRF
GHC GHP GRD HRK IEP ITL LTL LUF LVL MGF MRO MTL MZM NLG PTE ROL RUR SDD SIT SKK SLL SRG STD TJR
TMM TPE TRL USS VEB VEF XFO XFU YUM ZMK ZWD ZWL ZWN ZWR
`
  .trim()
  .split(/\s+/);

/** Of the minor unit, by what ISO 4217 says. */
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
