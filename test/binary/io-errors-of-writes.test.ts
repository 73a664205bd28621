// As io-errors-of-reads.test.ts. The server must also keep every acknowledged write.
import { Database } from "bun:sqlite";
import { describe, test } from "bun:test";
import { CHECKPOINT_PAGES } from "../../src/sqlite/file/connection.ts";
import { newEmail } from "../http/make.ts";
import { isLong } from "../support/long.ts";
import { untilHealth } from "./health.ts";
import {
  acknowledgeUser,
  failEachCall,
  isUnavailable,
  open,
  read,
  sync,
  timeoutMs,
  truncate,
  useBase,
  write,
  writeToFullDisk,
  writing,
} from "./io-errors.ts";
import { attempt, failEachCallOf, type Request, type Run, retry } from "./io-errors-of-requests.ts";
import { skipTraced } from "./strace.ts";

const items = [{ sku: "A-1", quantity: 1, unit_price: 100 }];

/** In a database of 1,000 users with a write-ahead log. */
const requests: readonly (readonly [name: string, request: Request])[] = [
  [
    "POST of an order with a key",
    {
      method: "POST",
      path: "/orders",
      body: { user_id: 400, currency: "EUR", items },
      headers: { "idempotency-key": "an-order" },
      kinds: writing,
    },
  ],
  [
    "PATCH of a user",
    { method: "PATCH", path: "/users/600", body: { name: "New name" }, kinds: writing },
  ],
  [
    "POST of a user",
    { method: "POST", path: "/users", body: { email: "new@example.com" }, kinds: writing },
  ],
];

/** Writes so much from another connection that a checkpoint is due after the server's next commit. */
function fillLog(database: string): void {
  using db = new Database(database);
  db.run("pragma wal_autocheckpoint = 0");
  db.run("pragma synchronous = off");
  // The server writes now and then as well, e.g. when a token was used.
  db.run("pragma busy_timeout = 5000");
  const rename = db.prepare("update users set name = ? where id = 1");
  for (let frame = 0; frame <= CHECKPOINT_PAGES; frame += 1) rename.run(`Name ${frame}`);
}

async function checkpoint({ server, acknowledged, problems, duringFault }: Run): Promise<void> {
  async function create(): Promise<boolean> {
    const response = await server.call("POST", "/users", { body: { email: newEmail() } });
    if (response.status === 201) acknowledgeUser(acknowledged, response.json.data);
    else if (!isUnavailable(response)) problems.push(`${response.status} ${response.text}`);
    return response.status === 201;
  }

  fillLog(server.database);
  await duringFault(async () => {
    // The first starts the checkpoint, and the second waits for it.
    await create();
    await create();
  });
  await retry(create);
  await untilHealth(server, 200);
}

describe.skipIf(skipTraced)("with 1,000 users", () => {
  const base = useBase({ users: 1_000, withLog: false });

  test.each(isLong ? requests : requests.slice(0, 2))(
    "%s succeeds or returns 503 when a system call fails",
    (name, request) => failEachCallOf(name, base(), request),
    timeoutMs,
  );

  test(
    "a checkpoint loses no data when a system call fails",
    async () => {
      const kinds = [read, { ...write, files: [""] }, { ...writeToFullDisk, files: [""] }];
      await failEachCall("checkpoint", [...kinds, sync, truncate, open], (kind, when) =>
        attempt(base(), kind, when, checkpoint),
      );
    },
    timeoutMs,
  );
});
