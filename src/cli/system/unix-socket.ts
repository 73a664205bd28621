/** The file of a Unix socket. Bun creates it, and removes it when the server stops. */
import { lstatSync, rmSync } from "node:fs";
import { fail, fileProblem, messageOf, systemCode } from "../../base/error.ts";

/** @returns whether a process listens. `Bun.connect` reports a full queue as a refused connection; `fetch` does not */
async function isInUse(path: string): Promise<boolean> {
  // One that accepts no connection in a second is busy. `fetch` would look for the target of a redirect on port 80.
  const options = { unix: path, redirect: "manual", signal: AbortSignal.timeout(1_000) } as const;
  const error = await fetch("http://localhost/", options).catch((problem: unknown) => problem);
  return systemCode(error) !== "ECONNREFUSED";
}

/** Removes the socket of a process that was killed. @throws {AppError} operator if a process listens, or it is no socket */
export async function removeStaleSocket(path: string): Promise<void> {
  try {
    const found = lstatSync(path, { throwIfNoEntry: false });
    if (found === undefined) return;
    if (!found.isSocket()) fail("operator", "the file exists and is not a socket");
    if (await isInUse(path)) fail("operator", "the socket is in use");
    rmSync(path);
  } catch (error) {
    fail("operator", `Cannot listen on ${path}: ${fileProblem(error) ?? messageOf(error)}`);
  }
}
