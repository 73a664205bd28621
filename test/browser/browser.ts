/** Chromium, and everything that a page must not do. */
import type { Browser, BrowserContextOptions } from "playwright-core";

/** Path of Chromium; empty if the page is not tested. */
export const chromiumPath: string = Bun.env["TEST_BROWSER"] ?? "";

/** Disables Chromium's own requests. */
const quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync"];
const flags = [...quiet, "--disable-gpu", "--disable-quic", "--no-first-run"];

/** Runs in the page before everything else. A string, because the project has no types of browsers. */
const REPORT_BREACHES = `
  addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI }) =>
    console.error("breaks " + violatedDirective + " with " + blockedURI));
`;

export async function openBrowser(): Promise<Browser> {
  // Imported here, because the package is only installed for these tests.
  const { chromium } = await import("playwright-core");
  return chromium.launch({ executablePath: chromiumPath, args: flags });
}

/** @returns the page, and errors and warnings on the console, exceptions, breaches of the policy and requests to others */
export async function openPage(
  browser: Browser,
  url: string,
  path: string,
  options: BrowserContextOptions = {},
) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  const faults: string[] = [];
  page.on("console", (message) => {
    if (/^(?:error|warning)$/.test(message.type())) faults.push(message.text());
  });
  page.on("pageerror", (error) => faults.push(String(error)));
  context.on("request", (request) => {
    const asked = request.url();
    if (!asked.startsWith(`${url}/`) && !asked.startsWith("data:")) faults.push(`asks ${asked}`);
  });
  await page.addInitScript(REPORT_BREACHES);
  await page.goto(url + path);
  return { page, faults, [Symbol.asyncDispose]: () => context.close() };
}
