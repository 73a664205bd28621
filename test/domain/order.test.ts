import { expect, test } from "bun:test";
import { currencies } from "../../src/domain/currency.ts";
import { orderFields, orderStatuses, patchOrder } from "../../src/domain/order.ts";
import { MAX_PAGE_BYTES } from "../../src/domain/page.ts";
import { firstVersion, MAX_RECORD_BYTES } from "../../src/domain/record.ts";
import { expectThrown } from "../support/expect-error.ts";

const items = [{ sku: "A-1", quantity: 1, unit_price: 100 }];
const fields = orderFields({ user_id: 7, currency: "EUR", reference: "R-1", items });
const order = firstVersion(1, fields, "2026-11-20T18:57:03.120Z");

const steps = "pending-paid pending-canceled paid-shipped paid-canceled shipped-delivered";

test("patchOrder changes the status only by a step, or to itself", () => {
  for (const from of orderStatuses) {
    const allowed = orderStatuses.filter((to) => steps.includes(`${from}-${to}`));
    for (const to of orderStatuses) {
      const patch = () => patchOrder({ ...order, status: from }, { status: to });
      if (to === from || allowed.includes(to)) expect(patch().status).toBe(to);
      else expect(expectThrown(patch, "invalid_status_change")).toMatchObject({ allowed });
    }
  }
});

test("a page has room for 50 records of the largest size, and what the feed has of each", () => {
  expect(50 * (MAX_RECORD_BYTES + 1_000)).toBeLessThan(MAX_PAGE_BYTES);
});

test("patchOrder accepts every step of an order of the largest size, and no larger metadata", () => {
  const metadata = (length: number) => ({ a: "x".repeat(length) });
  const message = "Validation failed: body must be at most 65536 bytes of JSON as a whole record";
  const number = Number.MAX_SAFE_INTEGER;
  const numbers = { id: number, user_id: number, total: number, version: number };
  const end = {
    ...order,
    ...numbers,
    refunded: number,
    status: "delivered",
    metadata: metadata(0),
  };
  const largest = MAX_RECORD_BYTES - JSON.stringify(end).length;
  const placed = { ...order, ...orderFields({ ...order, metadata: metadata(largest) }) };
  const shipped = { ...placed, ...numbers, status: "shipped" } as const;
  const delivered = { status: "delivered", metadata: metadata(largest) } as const;
  expect(patchOrder(shipped, { status: "delivered" })).toMatchObject(delivered);
  expectThrown(
    () => patchOrder(placed, { metadata: metadata(largest + 1) }),
    "validation_failed",
    message,
  );
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
