import { expect, test } from "bun:test";
import { expectError, newUser, orderText, send, stored } from "./make.ts";
import { startSharedServer } from "./server.ts";

const server = await startSharedServer();
const { id: userId } = await newUser(server);

const largest = "9007199254740991"; // 2^53 − 1
const above = [
  "9007199254740992",
  "9007199254740993",
  "9223372036854775807",
  "9223372036854775808",
];
/** Literals that are not integers within ±(2^53 − 1). JSON.parse would round many of them to one. */
const never = [
  ...above,
  ...[`-${above[0]}`, "-9223372036854775808", "9".repeat(400), "1e16", "900719925474099.2e1"],
  ...["1e400", "-1e400", "1e999999999", "1.5", "0.1", "1e-1", "1e-400", "1e-999999999", "5e-324"],
  ...[
    "1.00000000000000000001",
    `1.${"0".repeat(400)}1`,
    "9007199254740990.5",
    "0.99999999999999999999",
  ],
  ...[`${largest}.0000001`, "4503599627370496.5", "9007199254740991.4e0"],
  ...["1E-400", "100000000000000000001e-2", "0.1e-999999999999", `${"9".repeat(300)}.5`],
  ...['"5"', '""', '"1e0"', "true", "false", "null", "[]", "[1]", "{}"],
];
async function expectRejected(raw: string, error: RegExp): Promise<void> {
  const before = await stored(server, "/orders?limit=1000");
  expectError(await send(server, "POST", "/orders", raw), 400, error);
  expect(await stored(server, "/orders?limit=1000")).toEqual(before);
}

for (const literal of never) {
  test(`an integer is rejected, not rounded, when written ${literal.slice(0, 24)}`, async () => {
    await expectRejected(
      orderText(userId, `1 × ${literal}`),
      /^Validation failed: items\[0\]\.unit_price must be an integer from -9007199254740991 to 9007199254740991$/,
    );
    await expectRejected(
      orderText(userId, `${literal} × 1`),
      /^Validation failed: items\[0\]\.quantity must be an integer from 1 to 1000000$/,
    );
    await expectRejected(
      orderText(literal, "1 × 1"),
      /^Validation failed: user_id must be an integer from 1 to 9007199254740991$/,
    );
  });
}

test("quantity is rejected when it is not from 1 to 1,000,000", async () => {
  for (const literal of ["0", "-0", "-1", "1000001", "1e7", largest]) {
    await expectRejected(
      orderText(userId, `${literal} × 0`),
      /^Validation failed: items\[0\]\.quantity must be an integer from 1 to 1000000$/,
    );
  }
});

test("POST /orders returns 400 when total exceeds 2^53 − 1", async () => {
  for (const items of [
    ["2 × 4503599627370496"],
    [`1 × ${largest}`, "1 × 1"],
    [`1 × ${largest}`, "1 × 2"],
    ["3 × 3002399751580331"],
    [`1000000 × ${largest}`],
    Array(100).fill(`1000000 × ${largest}`),
  ]) {
    await expectRejected(orderText(userId, ...items), /^Validation failed: (total|items) must /);
  }
});

test("POST /orders returns 400 when total is below 0", async () => {
  for (const items of [["1 × -1"], ["2 × 3", "7 × -1"], [`1000000 × -${largest}`]]) {
    await expectRejected(
      orderText(userId, ...items),
      /^Validation failed: items must add up to at least 0$/,
    );
  }
});
