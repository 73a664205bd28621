/** An object is a file, which is written under another name, synced, and renamed, or linked if it must not exist. */
import { link, lstat, mkdir, open, readdir, rename, rm, rmdir, stat } from "node:fs/promises";
import { dirname, join } from "node:path";
import { AppError, fail, fileProblem, systemCode } from "../base/error.ts";
import type { ObjectStorage, StoredObject } from "../domain/object-storage.ts";
import { MAX_OBJECT_BYTES } from "../domain/object-storage.ts";

/** The directory of files that are being written. No key has this name. */
const PARTIAL = "~partial";
/** Age at which a partial file is deleted, because its process has died. */
const STALE_MS = 3_600_000;

const NO_LINKS = "the file system does not permit this, or has no hard links";

/** Where `fileProblem` has none, or another one. */
const problems: Readonly<Record<string, string>> = {
  ENOENT: "the directory does not exist",
  ENOTDIR: "it is not a directory",
  EPERM: NO_LINKS,
  ENOTSUP: NO_LINKS,
};
const operatorCodes: readonly string[] = [...Object.keys(problems), "EACCES", "EROFS"];

/** @returns `null` if the work fails with this code, e.g. `ENOENT` */
async function nullOn<Result>(code: string, work: Promise<Result>): Promise<Result | null> {
  try {
    return await work;
  } catch (error) {
    if (systemCode(error) === code) return null;
    throw error;
  }
}

/** Rejects links below the root, which may be one: what they lead to is not the archive. @throws {AppError} operator */
async function requireNoLinks(root: string, path: string): Promise<void> {
  if (path.length <= root.length) return;
  await requireNoLinks(root, dirname(path));
  const stats = await nullOn("ENOENT", lstat(path));
  if (stats?.isSymbolicLink()) fail("operator", `${path} is a symbolic link: move it away`);
}

async function syncDirectory(path: string): Promise<void> {
  await using handle = await open(path, "r");
  await handle.sync();
}

/** In the order of their paths; none if the directory does not exist. @param after only files whose path is larger */
async function* findFiles(path: string, after = ""): AsyncGenerator<string> {
  const entries = await nullOn("ENOENT", readdir(path, { withFileTypes: true }));
  const children = (entries ?? []).map((entry) => {
    const own = join(path, entry.name);
    return { entry, own, first: entry.isDirectory() ? `${own}/` : own };
  });
  children.sort((left, right) => (left.first < right.first ? -1 : 1));
  for (const { entry, own, first } of children) {
    if (first <= after && !after.startsWith(first)) continue;
    if (entry.isFile() && own > after) yield own;
    else if (entry.isDirectory() && entry.name !== PARTIAL) yield* findFiles(own, after);
  }
}

async function makeDirectory(root: string, path: string): Promise<void> {
  if (path === root || (await nullOn("ENOENT", stat(path))) !== null) return;
  await makeDirectory(root, dirname(path));
  await nullOn("EEXIST", mkdir(path, 0o700));
  await syncDirectory(dirname(path));
}

async function removeEmpty(root: string, path: string): Promise<void> {
  try {
    for (let empty = path; empty !== root; empty = dirname(empty)) await rmdir(empty);
  } catch {
    // It has files.
  }
}

async function removeStale(root: string): Promise<void> {
  for await (const path of findFiles(join(root, PARTIAL))) {
    const { mtimeMs } = (await nullOn("ENOENT", stat(path))) ?? { mtimeMs: Number.NaN };
    if (Date.now() - mtimeMs > STALE_MS) await rm(path, { force: true });
  }
}

/** @param root must exist, or its disk is not mounted. @param timeoutMs of an operation: a network file system can block */
export function createDirectoryStorage(root: string, timeoutMs: number): ObjectStorage {
  const url = `file://${root}`;
  let hasWritten = false;

  function failure(action: string, code: "operator" | "unavailable", problem: string): AppError {
    return new AppError(code, `Cannot ${action} ${url}: ${problem}`);
  }

  async function run<Result>(action: string, work: () => Promise<Result>): Promise<Result> {
    const { promise, reject } = Promise.withResolvers<never>();
    const timer = setTimeout(() => {
      reject(failure(action, "unavailable", `no response in ${timeoutMs / 1000} s`));
    }, timeoutMs);
    try {
      return await Promise.race([work(), promise]);
    } catch (error) {
      const code = systemCode(error);
      if (!/^E[A-Z\d]+$/.test(code)) throw error;
      const kind = operatorCodes.includes(code) ? "operator" : "unavailable";
      throw failure(action, kind, problems[code] ?? fileProblem(error) ?? code);
    } finally {
      clearTimeout(timer);
    }
  }

  async function write(key: string, body: Uint8Array, move: typeof link): Promise<void> {
    const [path, partials] = [join(root, key), join(root, PARTIAL)];
    const isFirst = !hasWritten;
    hasWritten = true;
    for (const directory of [partials, dirname(path)]) await requireNoLinks(root, directory);
    if (isFirst) await removeStale(root);
    await makeDirectory(root, partials);
    const partial = join(partials, crypto.randomUUID());
    try {
      await using handle = await open(partial, "wx", 0o600);
      await handle.writeFile(body);
      await handle.sync();
      // If another process deletes the directory meanwhile, because it is empty, this fails, and is tried again.
      await makeDirectory(root, dirname(path));
      await move(partial, path);
    } finally {
      await rm(partial, { force: true });
    }
    await syncDirectory(dirname(path));
  }

  return {
    url,
    get: (key, maxBytes = MAX_OBJECT_BYTES) =>
      run("read", async () => {
        await requireNoLinks(root, join(root, key));
        const file = Bun.file(join(root, key)).slice(0, maxBytes + 1);
        const body = await nullOn("ENOENT", file.bytes());
        if (body === null) await stat(root);
        return body;
      }),
    put: (key, body) => run("write to", () => write(key, body, rename)),
    create: (key, body) =>
      run("write to", async () => {
        const published = write(key, body, link).then(() => true);
        return (await nullOn("EEXIST", published)) ?? false;
      }),
    list: (prefix, limit = Number.POSITIVE_INFINITY, after = "") =>
      run("list", async () => {
        const directory = join(root, dirname(`${prefix}x`));
        await stat(root);
        await requireNoLinks(root, directory);
        const objects: StoredObject[] = [];
        for await (const path of findFiles(directory, after === "" ? "" : join(root, after))) {
          if (objects.length >= limit) break;
          const key = path.slice(root.length + 1);
          if (!key.startsWith(prefix)) continue;
          const stats = await nullOn("ENOENT", stat(path));
          if (stats !== null) objects.push({ key, bytes: stats.size });
        }
        return objects;
      }),
    remove: (keys) =>
      run("delete from", async () => {
        const paths = keys.map((key) => join(root, key));
        for (const path of paths) await requireNoLinks(root, dirname(path));
        for (const path of paths) await rm(path, { force: true });
        for (const directory of new Set(paths.map(dirname))) await removeEmpty(root, directory);
      }),
  };
}
