// The page to look at records, of the binary in Chromium, run by `make browser-test`: it must have no errors, send no
// requests to other hosts, show texts only as texts, and be usable with the keyboard and a screen reader.
import { expect } from "bun:test";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { newOrder, newUser } from "../http/make.ts";
import { createToken } from "../http/server.ts";
import { isDark, openTests } from "./browser.ts";

const EXPECTED = /status of (?:400|401|403|404|503) /;
const { isSkipped, server, testPage } = await openTests("/api/v1/browse", "main", EXPECTED);

const HOSTILE = "<img src=x onerror=alert(1)>";

/** Two users, and 60 orders, of which the last one is paid and refunded in part. */
async function makeRecords() {
  const user = await newUser(server, {
    name: HOSTILE,
    metadata: { note: HOSTILE, ["k".repeat(40)]: "v" },
  });
  await newUser(server, { reference: "C 2+" });
  for (let at = 1; at < 60; at += 1) await newOrder(server, user.id, { reference: `S-${at}` });
  const item = { sku: "TEA", name: HOSTILE, quantity: 3, unit_price: 1_234 };
  const order = await newOrder(server, user.id, { currency: "JPY", items: [item] });
  await server.call("PATCH", `/orders/${order.id}`, { body: { status: "paid" } });
  await server.call("PATCH", `/orders/${order.id}`, { body: { refunded: 1_000 } });
  return { user, order };
}
const { user, order } = isSkipped ? ({} as never) : await makeRecords();

async function use(page: Page, token: string): Promise<void> {
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Show records" }).click();
}

const captionOf = (page: Page, text: string) =>
  page.locator("caption", { hasText: text }).waitFor();

async function axeFindings(page: Page): Promise<unknown[]> {
  await page.evaluate(
    await Bun.file(join(import.meta.dir, "node_modules/axe-core/axe.min.js")).text(),
  );
  const { violations }: any = await page.evaluate("axe.run()");
  return violations.map(({ id, nodes }: any) => [id, nodes[0]?.html]);
}

testPage("page shows orders by their filters, page by page, and goes back", async (page) => {
  await use(page, server.readToken);
  await captionOf(page, "60 orders, 1 to 50");
  await page.getByRole("link", { name: "Next" }).click();
  await captionOf(page, "60 orders, 51 to 60");
  await page.goBack();
  await captionOf(page, "60 orders, 1 to 50");
  await page.evaluate("location.hash = '#/unknown'");
  await captionOf(page, "60 orders, 1 to 50");
  await page.getByLabel("paid").check();
  await page.getByLabel("shipped").check();
  await page.getByRole("button", { name: "Show" }).click();
  await captionOf(page, "1 orders, 1 to 1");
  expect(page.url()).toContain("status=paid%2Cshipped");
  expect(await page.getByLabel("paid").isChecked()).toBe(true);
  await page.getByLabel("created from").fill("2020-01-01T00:00:00.000");
  await page.getByLabel("created to").fill("2020-01-02T00:00:00.000");
  await page.getByRole("button", { name: "Show" }).click();
  await captionOf(page, "0 orders");
  await page.getByLabel("created to").fill("2019-01-02T00:00:00.000");
  await page.getByRole("button", { name: "Show" }).click();
  await page.getByRole("status").filter({ hasText: "created_to" }).waitFor();
  await page.getByRole("link", { name: "Users" }).click();
  await captionOf(page, "2 users, 1 to 2");
  await page.getByLabel("reference").fill("C 2+");
  await page.getByRole("button", { name: "Show" }).click();
  await captionOf(page, "1 users, 1 to 1");
  await page.getByLabel("reference").fill("");
  await page.getByRole("button", { name: "Show" }).click();
  await captionOf(page, "2 users, 1 to 2");
  await newUser(server);
  await page.getByRole("button", { name: "Show" }).click();
  await captionOf(page, "3 users, 1 to 3");
});

testPage("page shows a record with its history, and texts only as texts", async (page) => {
  await use(page, server.readToken);
  await captionOf(page, "60 orders");
  await page.getByRole("link", { name: String(order.id), exact: true }).click();
  await captionOf(page, "History: 3");
  const text = await page.locator("main").innerText();
  for (const part of ["3,702 JPY", "1,000 JPY", "refunded", "write-test", HOSTILE])
    expect(text).toContain(part);
  await page
    .locator("dl")
    .getByRole("link", { name: String(user.id), exact: true })
    .click();
  await captionOf(page, "History: 1");
  expect(await page.locator("main").innerText()).toContain(HOSTILE);
  expect(await page.locator("img").count()).toBe(0);
  await page.getByRole("link", { name: "Orders of this user" }).click();
  await captionOf(page, "60 orders");
});

testPage("page plots sums, with a table of the numbers", async (page) => {
  await use(page, server.readToken);
  const busy = { status: 503, headers: { "retry-after": "0" } };
  await page.route("**/orders/sums?*", (route) => route.fulfill(busy), { times: 1 });
  await page.getByRole("link", { name: "Sums" }).click();
  await captionOf(page, "Sums in EUR");
  expect(await page.getByRole("img").count()).toBe(2);
  expect(await page.locator("rect").first().textContent()).toContain("59.00 EUR");
  expect(await page.getByRole("region", { name: "Sums in JPY" }).innerText()).toContain(
    "3,702 JPY",
  );
});

testPage("page asks again when a token is unknown or revoked, and forgets one", async (page) => {
  await use(page, `uat_${"0".repeat(36)}`);
  await page.getByRole("status").filter({ hasText: "unknown, expired or revoked" }).waitFor();
  await use(page, ` Bearer ${server.readToken}\n`);
  await captionOf(page, "60 orders");
  await page.reload();
  await captionOf(page, "60 orders");
  await page.getByRole("button", { name: "Forget" }).click();
  await page.getByLabel("Token").waitFor();
  expect(await page.evaluate("sessionStorage.length + localStorage.length")).toBe(0);
  expect(await page.getByRole("table").count()).toBe(0);
});

testPage("page does not offer what the token may not read", async (page) => {
  await use(page, await createToken(server.database, "users-only", "users:read"));
  await captionOf(page, " users, 1 to ");
  expect(await page.getByRole("link", { name: /Orders|Sums/ }).count()).toBe(0);
});

for (const colorScheme of ["light", "dark"] as const)
  testPage(
    `page is ${colorScheme}, 375 pixels wide, used by keyboard, and axe finds nothing`,
    async (page) => {
      expect(await axeFindings(page)).toEqual([]);
      await use(page, server.readToken);
      for (const view of ["orders", "users", `users/${user.id}`, "sums", `orders/${order.id}`]) {
        await page.evaluate(`location.hash = "#/${view}"`);
        await page.locator("h2", { hasText: view.replace("s/", " ") }).waitFor();
        expect([view, await axeFindings(page)]).toEqual([view, []]);
        const heights = "Array.from(document.querySelectorAll('th'), (cell) => cell.clientHeight)";
        expect(Math.max(...((await page.evaluate(heights)) as number[]))).toBeLessThan(50);
        expect(await page.evaluate("document.documentElement.scrollWidth")).toBe(375);
      }
      expect(await isDark(page)).toBe(colorScheme === "dark");
      await page.getByRole("link", { name: "Skip to the records" }).focus();
      await page.keyboard.press("Enter");
      await page.keyboard.press("Tab");
      expect(await page.evaluate("document.activeElement.closest('#view') !== null")).toBe(true);
      expect(page.url()).toEndWith(`#/orders/${order.id}`);
      await captionOf(page, "History: 3");
    },
    { viewport: { width: 375, height: 800 }, colorScheme },
  );
