/** The checksum of an export: a file next to it, with the suffix `.sha256`, as `sha256sum` writes and checks it. */
import { fail } from "./error.ts";

export const CHECKSUM_SUFFIX = ".sha256";

export async function hashOf(file: Blob): Promise<string> {
  const hasher = new Bun.CryptoHasher("sha256");
  for await (const part of file.stream()) hasher.update(part);
  return hasher.digest("hex");
}

export function formatChecksum(hash: string, path: string): string {
  return `${hash}  ${path.replace(/.*\//s, "")}\n`;
}

/** Does nothing without a checksum. @throws {AppError} operator if the file differs from it, or it cannot be read */
export async function verifyFile(path: string): Promise<void> {
  const checksum = Bun.file(path + CHECKSUM_SUFFIX);
  const stats = await checksum.stat().catch(() => null);
  if (stats === null) return;
  // A pipe would block, and a device may have no end.
  const isShort = stats.isFile() && stats.size <= 1024;
  const text = isShort ? await checksum.text().catch(() => "") : "";
  const [hash] = /\b[0-9a-f]{64}\b/i.exec(text) ?? [];
  if (hash === undefined)
    fail("operator", `${path}${CHECKSUM_SUFFIX} is not a checksum that can be read: move it away`);
  if (hash.toLowerCase() === (await hashOf(Bun.file(path)))) return;
  const advice = "If you have edited it, delete that file";
  fail("operator", `Cannot import ${path}: it differs from ${path}${CHECKSUM_SUFFIX}. ${advice}`);
}
