import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export interface TemporaryDirectory extends Disposable {
  readonly path: string;
  /** @returns the path of a file in the directory */
  at(name: string): string;
}

/**
 * Runs commands of a shell when this process has ended, however it ends. They are not in a child of this process, because
 * Bun kills all children when a test times out.
 * @param commands with `$1`, the first argument; they read stdin first, which ends with this process
 */
export function startWatcher(commands: string, ...args: string[]) {
  const words = ["sh", "-c", `exec 3<&0; { ${commands}\n} <&3 &`, "sh", ...args];
  const watcher = Bun.spawn(words, { cwd: tmpdir(), stdio: ["pipe", "pipe", "ignore"] });
  watcher.unref();
  return {
    tell(line: string): void {
      watcher.stdin.write(`${line}\n`);
      watcher.stdin.flush();
    },
    /** Lets it begin now. Resolves when it has ended. */
    async end(): Promise<void> {
      await watcher.stdin.end();
      await watcher.stdout.text();
    },
  };
}

const removeAll = 'while read -r path; do set -- "$@" "$path"; done; rm -rf -- "$@"';
const shared: { watcher?: ReturnType<typeof startWatcher> } = {};

/** Creates a temporary directory, deleted when it is disposed of, or else when this process has ended. */
export function makeDirectory(): TemporaryDirectory {
  const path = mkdtempSync(join(tmpdir(), "user-api-"));
  shared.watcher ??= startWatcher(removeAll);
  shared.watcher.tell(path);
  return {
    path,
    at: (name) => join(path, name),
    [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }),
  };
}
