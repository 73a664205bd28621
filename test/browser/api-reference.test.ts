// The reference page of the binary in Chromium, run by `make browser-test`: it must have no errors, send no requests
// to other hosts, and be usable with the mouse and the keyboard.
import { expect } from "bun:test";
import type { Locator, Page } from "playwright-core";
import { isDark, openTests } from "./browser.ts";

const REJECTED = /^Failed to load resource: .* status of (?:400|401|503) /;
const { server, testPage } = await openTests("/api/v1/docs", ".opblock", REJECTED);

const GOOD = "Used for all requests below";
const UNKNOWN = "The token is unknown, expired or revoked";

async function giveToken(page: Page, token: string, status: string): Promise<void> {
  await page.getByLabel("Token").fill(token);
  await page.getByRole("button", { name: "Use", exact: true }).click();
  await page.getByRole("status").filter({ hasText: status }).waitFor();
}

function operationOf(page: Page, tag: string, id: string): Locator {
  return page.locator(`#operations-${tag}-${id}`);
}

async function openOperation(page: Page, tag: string, id: string): Promise<Locator> {
  const operation = operationOf(page, tag, id);
  await operation.locator(".opblock-summary-control").click();
  return operation;
}

async function send(operation: Locator, body: unknown): Promise<{ status: string; json: any }> {
  await operation.locator(".opblock-summary-control").click();
  await operation.locator("textarea").fill(JSON.stringify(body));
  await operation.getByRole("button", { name: "Execute" }).click();
  return responseIn(operation);
}

async function responseIn(operation: Locator): Promise<{ status: string; json: any }> {
  const response = operation.locator(".live-responses-table .response");
  const status = await response.locator(".response-col_status").textContent();
  const text = await response.locator(".highlight-code code").first().textContent();
  return { status: status?.trim() ?? "", json: JSON.parse(text ?? "") };
}

/** In pixels from the top, also on a phone. */
const MAX_FIRST_OPERATION_END = 600;
const MAX_OPERATION_HEIGHT: Readonly<Record<number, number>> = { 1280: 2500, 390: 4000 };

/** Of a desktop and a phone. */
const WIDTHS = [1280, 390];
const HEIGHT = 800;
const SCHEMES = ["light", "dark"] as const;
for (const [width, colorScheme] of WIDTHS.flatMap((one) =>
  SCHEMES.map((two) => [one, two] as const),
)) {
  testPage(
    `page shows every operation without errors when it is ${width} pixels wide and ${colorScheme}`,
    async (page) => {
      const document: any = await (await fetch(`${server.url}/api/v1/openapi.json`)).json();
      const operations = Object.values<object>(document.paths).flatMap((path) => Object.keys(path));
      expect(await page.locator(".opblock").count()).toBe(operations.length);
      expect(await page.locator(".info .title").textContent()).toContain(document.info.title);
      const first = await page.locator(".opblock").first().boundingBox();
      expect((first?.y ?? Infinity) + (first?.height ?? 0)).toBeLessThan(MAX_FIRST_OPERATION_END);
      const dark = colorScheme === "dark";
      expect(await isDark(page)).toBe(dark);
      expect(await page.locator("html").getAttribute("class")).toBe(dark ? "dark-mode" : null);
      // An open operation is at its widest.
      await (await openOperation(page, "users", "listUsers")).locator(".responses-table").waitFor();
      const operation = await openOperation(page, "orders", "createOrder");
      await operation.locator(".responses-table").waitFor();
      expect(await page.evaluate("document.documentElement.scrollWidth")).toBe(width);
      expect((await operation.boundingBox())?.height).toBeLessThan(
        MAX_OPERATION_HEIGHT[width] ?? 0,
      );
      expect(await operation.getByRole("button", { name: "Cancel" }).count()).toBe(0);
      // The error responses are folded.
      const code = operation.getByText("idempotency_key_reused");
      const fold = operation.getByRole("button", {
        name: "Idempotency-Key belongs to a different",
      });
      for (const isOpen of [false, true, false]) {
        expect(await fold.getAttribute("aria-expanded")).toBe(`${isOpen}`);
        expect((await code.count()) > 0).toBe(isOpen);
        await fold.click();
      }
      // The scheme of the system changes.
      await page.emulateMedia({ colorScheme: dark ? "light" : "dark" });
      await page.waitForSelector(dark ? "html:not(.dark-mode)" : "html.dark-mode");
    },
    { viewport: { width, height: HEIGHT }, colorScheme },
  );
}

/** @returns the arguments of `curl` when a shell with this token runs the command */
function argumentsOf(command: string, token: string): string[] {
  const script = `curl() { printf '%s\\0' "$@"; }\n${command}`;
  const { stdout, exitCode } = Bun.spawnSync(["bash", "-c", script], { env: { TOKEN: token } });
  expect(exitCode).toBe(0);
  return stdout.toString().split("\0").slice(0, -1);
}

async function expectInView(element: Locator): Promise<void> {
  const box = await element.boundingBox();
  // Chromium scrolls to whole pixels.
  expect(box?.y).toBeGreaterThanOrEqual(-1);
  expect(box?.y).toBeLessThanOrEqual(HEIGHT - (box?.height ?? 0) + 1);
}

for (const width of WIDTHS)
  testPage(
    `page creates a user and an order with a pasted token, which it neither stores nor shows nor copies, at a width of ${width}`,
    async (page) => {
      await giveToken(page, ` Bearer ${server.writeToken}\n`, GOOD);
      expect(await page.locator(".authorization__btn, .btn.authorize").count()).toBe(0);
      const create = operationOf(page, "users", "createUser");
      const given = { email: `pat${width}@example.com`, name: "Pat O'Neil $TOKEN" };
      const user = await send(create, given);
      expect(user).toMatchObject({ status: "201", json: { data: given } });
      await expectInView(create.locator(".answer .response .response-col_status"));
      await expectInView(create.getByText("Response body"));
      // The page does not move when an operation with a response is opened again.
      const summary = create.locator(".opblock-summary-control");
      await summary.click();
      await summary.click();
      await create.locator(".answer").waitFor();
      await expectInView(summary);
      expect(await create.getByPlaceholder("Idempotency-Key").count()).toBe(1);
      expect(await create.getByPlaceholder("X-Request-Id").count()).toBe(0);
      expect(await create.locator(".curl").textContent()).toContain("Bearer $TOKEN");
      await create.locator(".answer > .highlight-code").getByRole("button").click();
      const command = String(await page.evaluate("navigator.clipboard.readText()"));
      const values = argumentsOf(command, "uat_from_the_shell");
      expect(values).toContain("Authorization: Bearer uat_from_the_shell");
      expect(values).toContain(`${server.url}/api/v1/users`);
      expect(JSON.parse(values.at(-1) ?? "")).toEqual(given);

      const items = [{ sku: "tea-01", quantity: 2, unit_price: 1999 }];
      const body = { user_id: user.json.data.id, currency: "EUR", items };
      const order = await send(operationOf(page, "orders", "createOrder"), body);
      expect(order).toMatchObject({
        status: "201",
        json: { data: { total: 3998, currency: "EUR" } },
      });
      const stored = await server.call("GET", `/orders/${order.json.data.id}`);
      expect(stored.json).toEqual(order.json);

      expect(await page.content()).not.toContain(server.writeToken);
      const kept = await page.evaluate(
        "JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, location.href])",
      );
      expect(kept).not.toContain("uat_");
      expect(await page.getByLabel("Token").inputValue()).toBe("");
      await page.reload();
      await page.waitForSelector(".opblock");
      expect(await page.getByRole("status").textContent()).not.toContain(GOOD);
      expect(await page.content()).not.toContain(server.writeToken);
    },
    { permissions: ["clipboard-read", "clipboard-write"], viewport: { width, height: HEIGHT } },
  );

// That parameters have no default, which would be sent as well, is in openapi.test.ts.
testPage("page sends a list of ids", async (page) => {
  await giveToken(page, server.readToken, GOOD);
  const operation = await openOperation(page, "users", "listUsers");
  const ids = operation.locator('tr[data-param-name="id"]');
  for (const [at, id] of ["2", "1"].entries()) {
    await ids.getByRole("button", { name: "Add" }).click();
    await ids.locator("input").nth(at).fill(id);
  }
  await operation.getByRole("button", { name: "Execute" }).click();
  await operation.locator(".request-url").getByText("?id=2,1").waitFor({ state: "attached" });
  expect(await responseIn(operation)).toMatchObject({ status: "200" });
});

testPage(
  "page rejects an invalid token, forgets a valid one on request, and sends public requests without one",
  async (page) => {
    await giveToken(page, server.readToken, GOOD);
    await giveToken(page, "uat_wrong", UNKNOWN);
    const forget = page.getByRole("button", { name: "Forget" });
    // The earlier token is no longer used.
    expect(await forget.isVisible()).toBe(false);
    await giveToken(page, "uat_\u{1f600}", "it contains invalid characters");
    await giveToken(page, server.readToken, GOOD);
    await forget.click();
    await page.getByRole("status").filter({ hasText: "Forgotten when you leave" }).waitFor();
    expect(await forget.isVisible()).toBe(false);
    const operation = await openOperation(page, "users", "createUser");
    await operation.getByRole("button", { name: "Execute" }).click();
    await page.getByRole("status").filter({ hasText: "Enter a token first" }).waitFor();
    expect(await page.locator(":focus").getAttribute("id")).toBe("token");
    expect(await operation.locator(".live-responses-table").count()).toBe(0);
    const health = await openOperation(page, "system", "getHealth");
    await health.getByRole("button", { name: "Execute" }).click();
    expect(await responseIn(health)).toMatchObject({ status: "200" });
  },
);

testPage("page ignores the check of a token that ends after that of the next one", async (page) => {
  await page.evaluate(`
    var accepted = Promise.withResolvers();
    const send = fetch;
    fetch = async (...input) => {
      const response = await send(...input);
      if (response.ok) accepted.resolve();
      return response;
    };
  `);
  const first = Promise.withResolvers<void>();
  await page.route("**/api/v1/users?limit=1", async (route) => {
    const isFirst = route.request().headers()["authorization"]?.endsWith(server.readToken);
    if (isFirst) await first.promise;
    await route.fulfill({ status: isFirst ? 200 : 401 });
  });
  await giveToken(page, server.readToken, "Checking the token");
  await giveToken(page, "uat_wrong", UNKNOWN);
  first.resolve();
  await page.evaluate("accepted.promise");
  expect(await page.getByRole("status").textContent()).toContain(UNKNOWN);
  expect(await page.getByRole("button", { name: "Forget" }).isVisible()).toBe(false);
});

testPage("page uses no token when the service cannot verify it", async (page) => {
  await page.route("**/api/v1/users?limit=1", (route) => route.fulfill({ status: 503 }));
  await giveToken(page, server.writeToken, "cannot check the token at the moment");
  expect(await page.getByLabel("Token").inputValue()).toBe(server.writeToken);
  expect(await page.getByRole("button", { name: "Forget" }).isVisible()).toBe(false);
});

async function tabTo(page: Page, target: Locator): Promise<void> {
  for (let presses = 0; presses < 100; presses += 1) {
    await page.keyboard.press("Tab");
    if ((await target.and(page.locator(":focus")).count()) === 1) return;
  }
  throw new Error(`Tab does not reach ${target}`);
}

testPage("page can be used with the keyboard alone", async (page) => {
  const { keyboard } = page;
  await keyboard.press("Tab");
  expect(await page.locator(":focus").textContent()).toBe("Skip to the reference");
  await tabTo(page, page.getByLabel("Token"));
  await keyboard.insertText(server.writeToken);
  await keyboard.press("Enter");
  await page.getByRole("status").filter({ hasText: GOOD }).waitFor();

  const operation = operationOf(page, "users", "createUser");
  const summary = operation.locator(".opblock-summary-control");
  await tabTo(page, summary);
  const outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle");
  expect(outline).not.toBe("none");
  await keyboard.press("Enter");
  const body = operation.getByRole("textbox", { name: "Request body" });
  await body.waitFor();
  await tabTo(page, body);
  await keyboard.press("ControlOrMeta+A");
  await keyboard.insertText('{"email": "bob@example.com"}');
  await tabTo(page, operation.getByRole("button", { name: "Execute" }));
  await keyboard.press("Enter");
  expect(await responseIn(operation)).toMatchObject({ status: "201" });
});

testPage(
  "Content-Security-Policy blocks inline scripts and requests to other hosts, and these tests notice both",
  async (page, faults) => {
    await page.evaluate(`
    const script = document.createElement("script");
    script.textContent = "document.title = 'taken over'";
    document.body.append(script);
    fetch("http://localhost:1/").catch(() => null);
  `);
    expect(await page.title()).toBe("user-api reference");
    expect(faults).toContain("breaks script-src-elem with inline");
    expect(faults.splice(0)).toContain("breaks connect-src with http://localhost:1/");
  },
);
