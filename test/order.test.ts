import { expect, test } from "bun:test";
import { currencies } from "../src/currency.ts";
import { type Order, orderStatuses, patchOrder, totalOf } from "../src/order.ts";
import { MAX_PAGE_BYTES } from "../src/page.ts";
import { expectThrown } from "./expect-error.ts";

const order: Order = {
  id: 1,
  user_id: 7,
  currency: "EUR",
  items: [{ sku: "A-1", quantity: 1, unit_price: 100 }],
  total: 100,
  status: "pending",
  metadata: { a: "1" },
  version: 1,
  created_at: "2026-11-20T18:57:03.120Z",
  updated_at: "2026-11-20T18:57:03.120Z",
};

test("patchOrder changes only the metadata when the patch has no status", () => {
  for (const status of orderStatuses) {
    const patched = patchOrder({ ...order, status }, { metadata: { a: null, b: "2" } });
    expect(patched).toEqual({ status, metadata: { b: "2" } });
  }
  expect(patchOrder(order, { metadata: null })).toEqual({ status: "pending", metadata: {} });
});

test("a page has room for 50 orders of the largest size, and what the feed has of each", () => {
  const number = Number.MAX_SAFE_INTEGER;
  // JSON writes a control character as six bytes.
  const text = (length: number) => "\u0001".repeat(length);
  const item = { sku: text(64), name: text(200), quantity: 1_000_000, unit_price: -number };
  const keys = Array.from({ length: 50 }, (_, at) => text(40) + at);
  const largest: Order = {
    ...order,
    id: number,
    user_id: number,
    items: Array(100).fill(item),
    total: number,
    status: "delivered",
    metadata: Object.fromEntries(keys.map((key) => [key, text(500)])),
    version: number,
  };
  const itemsBytes = 170_000;
  expect(JSON.stringify(largest.items).length).toBeLessThan(itemsBytes);
  const restBytes = JSON.stringify({ ...largest, items: [] }).length + 1_000;
  expect(50 * (itemsBytes + restBytes)).toBeLessThan(MAX_PAGE_BYTES);
  const message = "Validation failed: items must be at most 170000 bytes as JSON";
  expectThrown(() => totalOf(Array(105).fill(item)), "validation_failed", message);
});

// The codes of ISO 4217 as of 2026-01-01, and those that it has dropped since 2000. Add new codes, and remove none: an
// export of orders that have it could not be imported.
const acceptedCurrencies = `
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
`;

test("currencies are never removed", () => {
  expect(currencies).toEqual(expect.arrayContaining(acceptedCurrencies.trim().split(/\s+/)));
  expect(new Set(currencies).size).toBe(currencies.length);
});
