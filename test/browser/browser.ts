/** Chromium, and everything that a page must not do. */
import { afterAll, expect, test } from "bun:test";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { startSharedServer } from "../http/server.ts";

/** Path of Chromium; empty if the page is not tested. */
const chromiumPath: string = Bun.env["TEST_BROWSER"] ?? "";

/** Disables Chromium's own requests. */
const quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync"];
const flags = [...quiet, "--disable-gpu", "--disable-quic", "--no-first-run"];

/** Runs in the page before everything else. A string, because the project has no types of browsers. */
const REPORT_BREACHES = `
  addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI }) =>
    console.error("breaks " + violatedDirective + " with " + blockedURI));
`;

async function openBrowser(): Promise<Browser> {
  // Imported here, because the package is only installed for these tests.
  const { chromium } = await import("playwright-core");
  return chromium.launch({ executablePath: chromiumPath, args: flags });
}

/** @returns the page, and errors and warnings on the console, exceptions, breaches of the policy and requests to others */
async function openPage(
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

export async function isDark(page: Page): Promise<boolean> {
  const color: string = await page.evaluate("getComputedStyle(document.body).backgroundColor");
  return Number(/\d+/.exec(color)?.[0]) < 128;
}

/**
 * Starts a server for the tests of one of its pages, which are skipped without Chromium.
 * @param ready a selector of what the page has when it can be used
 * @param expected an error that Chromium logs, too: of a response that the page expects
 */
export async function openTests(path: string, ready: string, expected: RegExp) {
  const isSkipped = chromiumPath === "";
  const [browser, server] = isSkipped
    ? ([] as never)
    : await Promise.all([openBrowser(), startSharedServer()]);
  afterAll(() => browser?.close());

  /** Tests the page, and expects no other errors. @param work takes out of `faults` those that it expects */
  function testPage(
    name: string,
    work: (page: Page, faults: string[]) => Promise<void>,
    options: BrowserContextOptions = {},
  ): void {
    const run = async () => {
      await using opened = await openPage(browser, server.url, path, options);
      const { page, faults } = opened;
      await page.waitForSelector(ready);
      await work(page, faults);
      expect(faults.filter((fault) => !expected.test(fault))).toEqual([]);
    };
    test.skipIf(isSkipped)(name, run, 60_000);
  }

  return { isSkipped, server, testPage };
}
