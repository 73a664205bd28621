// A server whose archive is on S3, which misbehaves for a while: what clients see in each mode, that the server
// recovers, and that nothing acknowledged is lost with the machine afterwards.
import { describe, expect, test } from "bun:test";
import { newEmail } from "../http/make.ts";
import { sendCall, type TestResponse } from "../http/server.ts";
import { type S3Server, testAccount } from "../object-storage/s3-server.ts";
import { isLong } from "../support/long.ts";
import { binary } from "../support/program.ts";
import { makeRandom } from "../support/random.ts";
import { makePlace, token, urlOf } from "./archived-place.ts";

const modes = ["sync", "async"] as const;
/** The server waits for a stalled request for 10 seconds. */
const TIMEOUT_MS = 180_000;

/** Storage that does not take what is written to it; `null` if it is full. */
const outages: Readonly<Record<string, ReturnType<S3Server["misbehave"]>>> = {
  "closes connections": { do: "refuse" },
  "does not respond": { do: "stall" },
  fails: { do: "fail", status: 500, code: "InternalError" },
  "asks for fewer requests": { do: "fail", status: 503, code: "SlowDown" },
  "has credentials that have expired": { do: "fail", status: 400, code: "ExpiredToken" },
  "is full": null,
};

function begin(server: S3Server, misbehaviour: ReturnType<S3Server["misbehave"]>): void {
  if (misbehaviour === null) server.capacityBytes = 0;
  else server.misbehave = () => misbehaviour;
}

function heal(server: S3Server): void {
  server.misbehave = () => null;
  server.capacityBytes = Number.POSITIVE_INFINITY;
}

/** @param mode of ARCHIVE_COMMIT */
async function startArchived(mode: string) {
  const place = await makePlace({ ARCHIVE_URL: "s3://bucket/shop", ARCHIVE_COMMIT: mode });
  const server = place.start();
  const url = await urlOf(server);
  const acknowledged: string[] = [];
  async function create(headers = {}, email = newEmail()): Promise<TestResponse> {
    const response = await sendCall(url, token, "POST", "/users", { body: { email }, headers });
    if (response.status === 201) acknowledged.push(email);
    return response;
  }
  return {
    ...place,
    server,
    call: (method: string, path: string) => sendCall(url, token, method, path, {}),
    create,
    /** @returns the status */
    write: async () => (await create()).status,
    /** Destroys the machine. @returns the acknowledged writes that the archive does not have */
    async findLost(): Promise<string[]> {
      server.kill("SIGKILL");
      await server.ended;
      // The storage repeats both in its errors.
      expect(server.output()).not.toContain(testAccount.accessKeyId);
      expect(server.output()).not.toContain(testAccount.secretAccessKey);
      place.loseData();
      const restored = new Set((await place.restore()).map(({ email }) => email));
      return acknowledged.filter((email) => !restored.has(email));
    },
  };
}

type Archived = Awaited<ReturnType<typeof startArchived>>;

/** @returns whether the archive has everything, by what the server says */
async function isComplete({ call }: Archived): Promise<boolean> {
  const { json } = await call("GET", "/health");
  const { seconds_behind, bytes_behind } = json.data?.archive ?? {};
  return seconds_behind === 0 && bytes_behind === 0;
}

/** Waits until a write of now is being uploaded: the server says only once a second how far the archive is behind. */
async function untilSent({ storage, write }: Archived): Promise<void> {
  const before = storage.calls.length;
  await write();
  const isUpload = ({ operation, key }: S3Server["calls"][number]) =>
    operation === "put" && key.startsWith("shop/log/");
  while (!storage.calls.slice(before).some(isUpload)) await Bun.sleep(20);
}

async function untilComplete(archived: Archived): Promise<void> {
  while (!(await isComplete(archived))) await Bun.sleep(50);
}

describe.skipIf(binary === "")("storage that", () => {
  for (const [at, [what, misbehaviour]] of Object.entries(outages).entries()) {
    test.concurrent.if(isLong || at % 2 === 0)(
      `${what} rejects writes in sync mode, and nothing acknowledged is lost`,
      async () => {
        await using archived = await startArchived("sync");
        const { storage, create, write, call, findLost } = archived;
        const key = { "Idempotency-Key": "a" };
        expect(await write()).toBe(201);
        begin(storage, misbehaviour);
        const late = await create(key, "late@example.com");
        expect([late.status, late.headers.get("retry-after")]).toEqual([503, "2"]);
        const rejected = await create();
        expect([rejected.status, rejected.json.error]).toEqual([
          503,
          "the archive does not respond",
        ]);
        expect((await call("GET", "/users")).status).toBe(200);
        expect((await call("GET", "/health")).status).toBe(503);
        heal(storage);
        while ((await create(key, "late@example.com")).status !== 201) await Bun.sleep(50);
        expect((await call("GET", "/users?email=late@example.com")).json.meta.total).toBe(1);
        expect(await findLost()).toEqual([]);
      },
      TIMEOUT_MS,
    );

    test.concurrent.if(isLong || at % 2 === 1)(
      `${what} is caught up with in async mode`,
      async () => {
        await using archived = await startArchived("async");
        const { storage, write, server, findLost } = archived;
        expect(await write()).toBe(201);
        await untilComplete(archived);
        begin(storage, misbehaviour);
        expect([await write(), await write()]).toEqual([201, 201]);
        while (!server.output().includes('"archive not written"')) await Bun.sleep(50);
        // Otherwise the test times out.
        while (await isComplete(archived)) await Bun.sleep(50);
        heal(storage);
        await untilComplete(archived);
        while (!server.output().includes('"archive written again"')) await Bun.sleep(50);
        expect(await findLost()).toEqual([]);
      },
      TIMEOUT_MS,
    );
  }

  for (const mode of modes) {
    test.concurrent(
      `loses, cuts, repeats, shuffles and fails a third of all requests loses nothing in ${mode} mode`,
      async () => {
        const random = makeRandom(7919);
        await using archived = await startArchived(mode);
        const { storage, write, findLost } = archived;
        storage.misbehave = () => {
          const way = random(18);
          if (way === 0) return { do: "lose" };
          if (way === 1) return { do: "cut" };
          if (way === 2) return { do: "repeat" };
          if (way === 3) return { do: "refuse" };
          if (way === 4) return { do: "fail", status: 503, code: "SlowDown" };
          return way === 5 ? { do: "fail", status: 500, code: "InternalError" } : null;
        };
        const clients = Array.from({ length: 8 }, async () => {
          for (let count = 0; count < 25; count++) await write();
        });
        await Promise.all(clients);
        if (mode === "async") {
          await untilSent(archived);
          await untilComplete(archived);
        }
        // The restore meets the same.
        expect(await findLost()).toEqual([]);
      },
      TIMEOUT_MS,
    );
  }
});
