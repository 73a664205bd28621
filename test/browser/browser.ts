/** Chromium, and an eye on all that a page of ours must not do. */
import type { Browser, BrowserContextOptions, Page } from "playwright-core";

/** Path of Chromium; empty where the page is not looked at. */
export const chromium_path: string = Bun.env["TEST_BROWSER"] ?? "";

/** What Chromium would ask of its maker by itself. */
const quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync"];
const flags = [...quiet, "--disable-gpu", "--disable-quic", "--no-first-run"];

/** Runs in the page, before all else. Text, as this project is checked without the types of browsers. */
const REPORT_BREACHES = `
  addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI }) =>
    console.error("breaks " + violatedDirective + " with " + blockedURI));
`;

export async function openBrowser(): Promise<Browser> {
  // Its package is this folder's own: who does not run these tests has not got it.
  const { chromium } = await import("playwright-core");
  return chromium.launch({ executablePath: chromium_path, args: flags });
}

export interface Watched extends AsyncDisposable {
  readonly page: Page;
  /** Errors and warnings on the console, exceptions, breaches of the policy, requests to others. */
  readonly faults: string[];
}

/** A page of its own, without history, that has opened the reference of a server. */
export async function openReference(
  browser: Browser,
  url: string,
  options: BrowserContextOptions = {},
): Promise<Watched> {
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
  await page.goto(`${url}/api/v1/docs`);
  await page.waitForSelector(".opblock");
  return { page, faults, [Symbol.asyncDispose]: () => context.close() };
}
