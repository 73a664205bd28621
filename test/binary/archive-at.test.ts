// Restores an archive to each second of a run, and compares it with what clients were told: what was acknowledged before
// that time is in, and what was begun after it is not.
import { expect, test } from "bun:test";
import { sendCall } from "../http/server.ts";
import { isLong } from "../support/long.ts";
import { binary } from "../support/program.ts";
import { makeRandom } from "../support/random.ts";
import { makePlace, token, urlOf } from "./archived-place.ts";

/** `ARCHIVE_AT_SECONDS` for a longer run. */
const SECONDS = Number(Bun.env["ARCHIVE_AT_SECONDS"] ?? (isLong ? 4 : 2));
const CLIENTS = isLong ? 8 : 4;

/** A write of a client, one after the other. All times are those of the clock of the machine, in milliseconds. */
interface Write {
  readonly beganMs: number;
  readonly acknowledgedMs: number;
  /** The name of the user afterwards; `null` if it does not exist. */
  readonly name: string | null;
}

/** By email. */
type Ledger = Map<string, Write[]>;

async function writeUntil(url: string, client: number, endMs: number, ledger: Ledger) {
  const random = makeRandom(client);
  for (let count = 0; Date.now() < endMs; count += 1) {
    const email = `${client}-${count}@example.com`;
    const writes: Write[] = [];
    ledger.set(email, writes);
    let id = 0;
    const send = async (method: string, name: string | null) => {
      const beganMs = Date.now();
      const path = method === "POST" ? "/users" : `/users/${id}`;
      const body = method === "DELETE" ? undefined : { email, name };
      const { status, json } = await sendCall(url, token, method, path, { body });
      expect(status).toBeLessThan(300);
      writes.push({ beganMs, acknowledgedMs: Date.now(), name });
      id = json?.data?.id ?? id;
    };
    await send("POST", "0");
    for (let version = random(4); version > 0; version -= 1) await send("PATCH", `${version}`);
    if (random(2) === 0) await send("DELETE", null);
    await Bun.sleep(random(20));
  }
}

/** @returns the names that a user may have at this time; `null` if it may not exist */
function namesAt(writes: readonly Write[], atMs: number): (string | null)[] {
  const before = writes.findLast(({ acknowledgedMs }) => acknowledgedMs <= atMs);
  const between = writes.filter((each) => each.beganMs <= atMs && each.acknowledgedMs > atMs);
  return [before?.name ?? null, ...between.map(({ name }) => name)];
}

test.skipIf(binary === "")(
  "an archive restores what was acknowledged at each second, and nothing that was begun later",
  async () => {
    await using place = await makePlace({ ARCHIVE_COMMIT: "sync" });
    const server = place.start();
    const url = await urlOf(server);
    const startMs = Date.now();
    const ledger: Ledger = new Map();
    const endMs = startMs + SECONDS * 1000;
    await Promise.all(
      Array.from({ length: CLIENTS }, (_, client) => writeUntil(url, client, endMs, ledger)),
    );
    server.kill("SIGKILL");
    await server.ended;
    let largest = 0;
    for (let atMs = startMs + 500; atMs < endMs; atMs += 1000) {
      const rows = await place.restore({ args: ["--at", new Date(atMs).toISOString()] });
      const names = new Map(rows.map(({ email, name }) => [email, name]));
      const wrong = [...ledger].filter(
        ([email, writes]) => !namesAt(writes, atMs).includes(names.get(email) ?? null),
      );
      expect([atMs - startMs, wrong]).toEqual([atMs - startMs, []]);
      largest = Math.max(largest, rows.length);
    }
    expect(largest).toBeGreaterThan(0);
  },
  60_000 + 10_000 * SECONDS,
);
