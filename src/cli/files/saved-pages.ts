/** Saves a list of another server as NDJSON, page by page. An interrupted run goes on where it ended. */
import { appendFileSync, existsSync, truncateSync } from "node:fs";
import { AppError, fail } from "../../base/error.ts";
import { fsyncPath, publishNew } from "../../base/temporary-file.ts";
import { createRetries } from "../system/request.ts";
import { inFile, withFileErrors } from "../system/streams.ts";
import type { CommandSystem } from "../system/system.ts";
import { parse, readObjects } from "./json-objects.ts";

/** A page that is too much for the server is halved. */
const [MAX_PAGE, MIN_PAGE] = [100, 10];
/** Before each page: the server has other work. */
const PAUSE_MS = 100;
/** Of one page, in about two minutes. */
const MAX_FAILURES = 7;

type Row = Readonly<Record<string, unknown>> & { readonly id: number };

/** @throws {AppError} unavailable; operator if the ids do not ascend */
function parsePage(text: string): readonly Row[] {
  const page = parse(text);
  if (!Array.isArray(page) || !page.every((row) => Number.isSafeInteger(row?.id)))
    return fail("unavailable", "Cannot read the orders: the response is no page of them");
  if (page.some(({ id }, at) => id <= page[at - 1]?.id))
    fail("operator", "Cannot read the orders: the shop does not return them by id");
  return page;
}

/** Reads what an interrupted run has saved. A last line that is cut is removed. */
async function resume(path: string, { openInput }: CommandSystem) {
  const saved = { count: 0, last: 0 };
  let [size, end] = [0, 0];
  for await (const chunk of openInput(path)) {
    const at = chunk.lastIndexOf(0x0a);
    if (at !== -1) end = size + at + 1;
    size += chunk.length;
  }
  truncateSync(path, end);
  for await (const { line, value } of inFile(path, readObjects(openInput(path)))) {
    if (value === null) fail("operator", `Cannot read ${path}: line ${line} is damaged`);
    saved.count += 1;
    saved.last = (value as Row).id;
  }
  return saved;
}

/**
 * A page begins with the last record of the page before: if records are deleted meanwhile, the offset goes back until it does.
 * @param save a new file, which gets its name when it is complete
 * @param server is part of the name until then: the list of another one would go on after the last id of this one
 * @param send returns the JSON of a page, of which the ids ascend
 * @throws {AppError} operator if a page cannot be read
 */
export async function savePages(
  save: string,
  server: string,
  send: (offset: number, size: number) => Promise<string>,
  system: CommandSystem,
  onSaved: (count: number) => void,
): Promise<void> {
  const complete = "it exists, and is complete. Use it as a source, or another name";
  if (existsSync(save)) fail("operator", `Cannot write ${save}: ${complete}`);
  const path = `${save}.${server}.partial`;
  const retries = createRetries(system);
  const append = (rows: readonly Row[]) => {
    const text = rows.map((row) => `${JSON.stringify(row)}\n`).join("");
    withFileErrors("write", path, () => appendFileSync(path, text, { mode: 0o600 }));
  };
  append([]);
  let { count, last } = await resume(path, system);
  let size = MAX_PAGE;

  async function readPage(offset: number): Promise<readonly Row[]> {
    for (let failures = 1; ; failures += 1) {
      await system.clock.sleep(PAUSE_MS);
      try {
        const page = parsePage(await send(offset, size));
        retries.end();
        return page;
      } catch (error) {
        if (!(error instanceof AppError)) throw error;
        const advice = `${count} orders are in ${path}: run the command again to continue`;
        if (error.code !== "unavailable" || failures === MAX_FAILURES)
          fail("operator", `${error.message}; ${advice}`);
        size = Math.max(MIN_PAGE, Math.floor(size / 2));
        await retries.pause(error, "trying again");
      }
    }
  }

  for (let offset = Math.max(0, count - 1); ; ) {
    const page = await readPage(offset);
    if (offset > 0 && (page[0]?.id ?? Number.POSITIVE_INFINITY) > last) {
      offset = Math.max(0, offset - MAX_PAGE);
      continue;
    }
    const added = page.filter(({ id }) => id > last);
    if (added.length === 0 && offset > count)
      fail("operator", "Cannot read the orders: the shop returns the same ones for every offset");
    // Only the last record itself.
    if (added.length === 0 && page.length < 2) break;
    append(added);
    last = added.at(-1)?.id ?? last;
    count += added.length;
    offset += page.length - 1;
    onSaved(count);
  }
  fsyncPath(path);
  if (!publishNew(path, save)) fail("operator", `Cannot write ${save}: ${complete}`);
}
