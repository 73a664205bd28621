// Makes the first, second, third … system call of each kind on the database files fail, one in each run, and
// then from that call on, as SQLite's own tests do. A read must return an error that the client may retry, and the server
// must recover without a restart.
import { describe, test } from "bun:test";
import { isLong } from "../support/long.ts";
import { emailOf, read, sync, timeoutMs, useBase, write } from "./io-errors.ts";
import { failEachCallOf, type Request } from "./io-errors-of-requests.ts";
import { skipTraced } from "./strace.ts";

const reading = [read];

/** In a database of 1,000 users with a write-ahead log. */
const requests: readonly (readonly [name: string, request: Request])[] = [
  ["GET of a list", { method: "GET", path: "/users?limit=20&offset=700", kinds: reading }],
  ["GET of health", { method: "GET", path: "/health", kinds: [write, sync] }],
  ["GET of a user", { method: "GET", path: "/users/500", kinds: reading }],
  ["GET by email", { method: "GET", path: `/users?email=${emailOf(300)}`, kinds: reading }],
];

describe.skipIf(skipTraced)("with 1,000 users", () => {
  const base = useBase({ users: 1_000, withLog: false });

  test.each(isLong ? requests : requests.slice(0, 2))(
    "%s succeeds or returns 503 when a system call fails",
    (name, request) => failEachCallOf(name, base(), request),
    timeoutMs,
  );
});
