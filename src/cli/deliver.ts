/** Webhooks: follows the changes of a server, and sends each one to a receiver until it accepts it. */
import { existsSync } from "node:fs";
import { AppError, fail } from "../base/error.ts";
import { readSecretFile } from "../base/secret.ts";
import { resolveLinks } from "../base/trusted-path.ts";
import type { Change, Feed } from "../domain/change.ts";
import { readChangeId } from "./changes.ts";
import { type Bounds, createRetries, readUrl, SAFE, send } from "./system/request.ts";
import { type CommandSystem, stopSignal } from "./system/system.ts";
import { readKeys, signedMessage } from "./webhook.ts";

/** The server waits for 50 s; a page has at most 4 MiB. */
const ofServer: Bounds = { timeoutMs: 90_000, maxBytes: 8 * 2 ** 20, final: [401, 403, 410] };
const ofReceiver: Bounds = { timeoutMs: 30_000, maxBytes: 0, final: [410] };

const POSITION = /^[A-Za-z0-9]{1,64}-\d{1,15}$/;

type DeliverOptions = Readonly<
  Record<"from" | "tokenFile" | "to" | "secretFile" | "position", string> &
    Partial<Record<"start" | "skip" | "include", string> & { types: readonly string[] }>
>;

/** `last` is the change that was done last. */
type Position = Pick<Feed, "feed" | "last">;

/** Of the message about the last change, and the text of the file. */
const idOf = ({ feed, last }: Position) => `${feed}-${last}`;

function readPosition(path: string): Position {
  const text = readSecretFile("--position", path, POSITION, "a position, which --start writes");
  const [feed = "", last] = text.split("-");
  return { feed, last: Number(last) };
}

/** @param after `null` for any first change. @throws {AppError} unavailable, also if a change is missing */
function parsePage(text: string, after: number | null) {
  try {
    const { data, meta }: { data: readonly Change[]; meta: Position } = JSON.parse(text);
    const isNext = ({ id }: Change, at: number) => after === null || id === after + 1 + at;
    if (POSITION.test(idOf(meta)) && data.every(isNext)) return { meta, changes: data };
  } catch {}
  fail("unavailable", "Cannot read the changes: the response is not a page of the next ones");
}

/** @throws {AppError} usage; operator or unavailable if it cannot begin, or no further change can be delivered */
export async function deliver(system: CommandSystem, options: DeliverOptions): Promise<void> {
  const { start, types } = options;
  const from = readUrl("--from", options.from, /^https?:[^?#]+$/, " or http://…, without a query");
  const to = readUrl("--to", options.to, SAFE, ", or http://… on this machine");
  const skip = readChangeId("--skip", options.skip ?? "0");
  const token = readSecretFile("--token-file", options.tokenFile, /^uat_\w+$/, "a token");
  const keys = readKeys("--secret-file", options.secretFile);
  const path = resolveLinks(options.position);
  const open = () => system.openOutput(path, true, system.config.databaseUrl);
  // Before a lock is made in a place where the position cannot be written.
  open()[Symbol.dispose]();
  using lock = system.lockFile(path);
  if (lock === null) fail("operator", `Cannot use ${path}: another process has locked it`);
  if (existsSync(path) === (start !== undefined)) {
    const isMissing = start === undefined;
    const hint = isMissing ? "no such file; --start creates it" : "it exists; leave out --start";
    fail("operator", `Cannot use ${path}: ${hint}`);
  }

  const stop = stopSignal(system);
  const retries = createRetries(system, stop);
  const init = { headers: { authorization: `Bearer ${token}` } };
  async function readPage(query: string, after: number | null) {
    const url = new URL(`${from.href.replace(/\/*$/, "")}/api/v1/changes?limit=50&${query}`);
    return parsePage(await send("read the changes", url, init, ofServer, system, stop), after);
  }
  function save(next: Position): Position {
    using file = open();
    file.write(`${idOf(next)}\n`);
    file.finish();
    return next;
  }

  const isWanted = ({ type }: Change) => types?.includes(type) ?? true;
  let position: Position;
  if (start === undefined) position = readPosition(path);
  else if (start === "now") position = save((await readPage("wait=0", null)).meta);
  else position = save({ ...(await readPage("after=0", 0)).meta, last: 0 });
  const include = options.include === undefined ? "" : "&include=record";
  while (!stop.aborted) {
    let advice = "trying again";
    try {
      const { feed, last } = position;
      const query = `wait=50&after=${last}&feed=${feed}${include}`;
      const { changes } = await readPage(query, last);
      if (!changes.some(isWanted)) retries.end();
      for (const change of changes) {
        if (stop.aborted) break;
        const { id } = change;
        const next = { feed, last: id };
        if (isWanted(change) && id !== skip) {
          const task = `deliver change ${id}`;
          if (id < skip) fail("operator", `Cannot skip ${skip}: the next change is ${id}`);
          advice = `trying again; --skip ${id} steps over it`;
          const message = signedMessage(keys, idOf(next), system.clock.nowMs(), change);
          await send(task, to, message, ofReceiver, system);
          retries.end();
        }
        position = isWanted(change) || change === changes.at(-1) ? save(next) : next;
      }
    } catch (error) {
      if (!(error instanceof AppError && error.code === "unavailable")) throw error;
      if (!stop.aborted) await retries.pause(error, advice);
    }
  }
  if (!(stop.reason instanceof AppError)) throw stop.reason;
}
