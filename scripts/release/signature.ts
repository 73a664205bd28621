/**
 * Checks the ad-hoc signature of a macOS binary. Apple silicon runs only signed programs. Bun signs its binaries,
 * but some versions of Bun do so incorrectly, which otherwise only a Mac would detect.
 * @see https://developer.apple.com/documentation/technotes/tn3126-inside-code-signing-hashes
 */
const MACH_O_64 = 0xfeedfacf;
const HEADER_BYTES = 32;
const LC_CODE_SIGNATURE = 0x1d;
const SUPER_BLOB = 0xfade0cc0;
const CODE_DIRECTORY = 0xfade0c02;
const ADHOC = 0x2;
const SHA256 = 2;

interface Region {
  readonly offset: number;
  readonly bytes: number;
}

function fail(reason: string): never {
  throw new Error(`The signature is not valid: ${reason}`);
}

/** @returns the region of the signature. Load commands are little-endian. */
function findSignature(file: DataView): Region {
  if (file.getUint32(0, true) !== MACH_O_64) fail("this is not a macOS binary");
  let at = HEADER_BYTES;
  for (let left = file.getUint32(16, true); left > 0; left -= 1) {
    if (file.getUint32(at, true) === LC_CODE_SIGNATURE) {
      return { offset: file.getUint32(at + 8, true), bytes: file.getUint32(at + 12, true) };
    }
    at += file.getUint32(at + 4, true);
  }
  return fail("there is none");
}

/** @returns the offset of the first code directory. Blobs are big-endian. */
function findDirectory(file: DataView, { offset }: Region): number {
  if (file.getUint32(offset) !== SUPER_BLOB) fail("it does not start with a super blob");
  const count = file.getUint32(offset + 8);
  for (let index = 0; index < count; index += 1) {
    const at = offset + file.getUint32(offset + 12 + 8 * index + 4);
    if (file.getUint32(at) === CODE_DIRECTORY) return at;
  }
  return fail("it has no hashes");
}

/** @throws if the signature is missing or not ad hoc, or if a hash does not match its page */
export function requireAdHocSignature(bytes: Uint8Array): void {
  const file = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const region = findSignature(file);
  if (region.offset + region.bytes !== bytes.length) fail("something follows it");
  const at = findDirectory(file, region);
  if ((file.getUint32(at + 12) & ADHOC) === 0) fail("it is not ad hoc");
  if (file.getUint8(at + 37) !== SHA256) fail("its hashes are not SHA-256");

  const hashes = at + file.getUint32(at + 16);
  const pages = file.getUint32(at + 28);
  const limit = file.getUint32(at + 32);
  const hash_bytes = file.getUint8(at + 36);
  const page_bytes = 2 ** file.getUint8(at + 39);
  if (limit !== region.offset) fail("its hashes do not cover everything before it");
  if (pages !== Math.ceil(limit / page_bytes)) fail("it does not have one hash per page");
  for (let page = 0; page < pages; page += 1) {
    const start = page * page_bytes;
    const content = bytes.subarray(start, Math.min(start + page_bytes, limit));
    const expected = bytes.subarray(hashes + page * hash_bytes, hashes + (page + 1) * hash_bytes);
    const found = new Bun.CryptoHasher("sha256").update(content).digest();
    if (Buffer.compare(expected, found) !== 0) fail(`page ${page} of ${pages} has another hash`);
  }
}
