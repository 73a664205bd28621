/** The file of a Unix socket. Bun creates it, and removes it when the server stops. */
import { chmodSync, lstatSync, rmSync } from "node:fs";
import { fail, fileProblem, messageOf, systemCode } from "../../base/error.ts";

/** The owner and the group, such as that of a proxy, may connect. */
const MODE = 0o660;
/** A process that accepts no connection in this time is busy, and not gone. */
const PROBE_MS = 1_000;

/** @returns whether a process listens. `Bun.connect` reports a full queue as a refused connection; `fetch` does not */
async function isInUse(path: string): Promise<boolean> {
  const signal = AbortSignal.timeout(PROBE_MS);
  // `fetch` would look for the target of a redirect on port 80.
  return fetch("http://localhost/", {
    unix: path,
    method: "HEAD",
    redirect: "manual",
    signal,
  }).then(
    () => true,
    (error) => systemCode(error) !== "ECONNREFUSED",
  );
}

/** @returns what identifies the file; `null` if there is none */
function identify(path: string): string | null {
  const stats = lstatSync(path, { throwIfNoEntry: false });
  if (stats === undefined) return null;
  if (!stats.isSocket()) fail("operator", "the file exists and is not a socket");
  return `${stats.ino} ${stats.ctimeMs}`;
}

/**
 * Removes the socket of a process that has ended without removing it, e.g. after a power failure.
 * @throws {AppError} operator if a process listens on it, or the file is not a socket
 */
export async function removeStaleSocket(path: string): Promise<void> {
  try {
    const found = identify(path);
    if (found === null) return;
    // Another server may have replaced it meanwhile.
    if ((await isInUse(path)) || identify(path) !== found) fail("operator", "the socket is in use");
    rmSync(path);
  } catch (error) {
    fail("operator", `Cannot listen on ${path}: ${fileProblem(error) ?? messageOf(error)}`);
  }
}

/** Until then, only this user can connect: see the umask in `main.ts`. */
export function allowGroup(path: string): void {
  chmodSync(path, MODE);
}
