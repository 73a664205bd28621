/** A tar.gz whose bytes depend on nothing but what is in it. */
import { chmod, readdir } from "node:fs/promises";
import { $ } from "bun";

/** Three seconds a binary; 12, the highest, is 2 % smaller and takes eleven. */
const LEVEL = 9;

/**
 * @param parent directory that holds `directory`, whose name all paths in the archive begin with
 * @param executables files in `directory` that may be run
 * @param seconds since 1970, the time of every file
 */
export async function createArchive(
  parent: string,
  directory: string,
  executables: readonly string[],
  seconds: number,
): Promise<Uint8Array> {
  // What the umask left would be in the archive.
  await chmod(`${parent}/${directory}`, 0o755);
  for (const file of await readdir(`${parent}/${directory}`)) {
    await chmod(`${parent}/${directory}/${file}`, executables.includes(file) ? 0o755 : 0o644);
  }
  const tar =
    await $`tar --create --directory=${parent} --format=ustar --sort=name --mtime=@${seconds} --owner=0 --group=0 --numeric-owner ${directory}`
      .quiet()
      .arrayBuffer();
  // Not the gzip of this machine: another version writes other bytes. This one comes with Bun.
  return Bun.gzipSync(tar, { library: "libdeflate", level: LEVEL });
}
