import { closeSync, mkdtempSync, openSync, rmSync, writeSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export type TemporaryDirectory = ReturnType<typeof makeDirectory>;

/**
 * Runs commands of a shell when this process ends, however it ends. The shell is not a child of this process, since Bun
 * kills its children when it exits after a test has timed out.
 * @param commands get `$1` and so on. They read stdin to its end, which comes when this process ends
 */
export function startWatcher(commands: string, ...args: string[]) {
  const pipe = join(tmpdir(), `user-api-${crypto.randomUUID()}`);
  Bun.spawnSync(["mkfifo", pipe]);
  const words = ["sh", "-c", `{ rm "$0"\n${commands}\n} <"$0" &`, pipe, ...args];
  const shell = Bun.spawn(words, { cwd: tmpdir(), stdio: ["ignore", "pipe", "ignore"] });
  shell.unref();
  const descriptor = openSync(pipe, "w");
  return {
    tell: (line: string) => writeSync(descriptor, `${line}\n`),
    /** Lets it begin now. Resolves when it has ended. */
    async end(): Promise<void> {
      closeSync(descriptor);
      await shell.stdout.text();
    },
  };
}

const removeAll = 'while read -r path; do set -- "$@" "$path"; done; rm -rf -- "$@"';
const shared: { watcher?: ReturnType<typeof startWatcher> } = {};

/** Creates a temporary directory, deleted when it is disposed of, or else when this process has ended. */
export function makeDirectory(parent = tmpdir()) {
  const path = mkdtempSync(join(parent, "user-api-"));
  shared.watcher ??= startWatcher(removeAll);
  shared.watcher.tell(path);
  return {
    path,
    at: (name: string) => join(path, name),
    [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }),
  };
}
