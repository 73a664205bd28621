/**
 * Whether the signature of a program for macOS fits it. Apple's processors run nothing unsigned; Bun
 * signs what it makes ad hoc, and some of its versions did so wrongly, which only a Mac would notice.
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

/** Where the signature lies; load commands are little-endian. */
function findSignature(file: DataView): Region {
  if (file.getUint32(0, true) !== MACH_O_64) fail("this is no program for macOS");
  let at = HEADER_BYTES;
  for (let left = file.getUint32(16, true); left > 0; left -= 1) {
    if (file.getUint32(at, true) === LC_CODE_SIGNATURE) {
      return { offset: file.getUint32(at + 8, true), bytes: file.getUint32(at + 12, true) };
    }
    at += file.getUint32(at + 4, true);
  }
  return fail("there is none");
}

/** Where the first blob of hashes begins; blobs are big-endian. */
function findDirectory(file: DataView, { offset }: Region): number {
  if (file.getUint32(offset) !== SUPER_BLOB) fail("it does not begin as one");
  const count = file.getUint32(offset + 8);
  for (let index = 0; index < count; index += 1) {
    const at = offset + file.getUint32(offset + 12 + 8 * index + 4);
    if (file.getUint32(at) === CODE_DIRECTORY) return at;
  }
  return fail("it has no hashes");
}

/** @throws when it is absent, not ad hoc, or any hash is not that of its page */
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
  if (limit !== region.offset) fail("it does not end where the signature begins");
  if (pages !== Math.ceil(limit / page_bytes)) fail("it has not one hash a page");
  for (let page = 0; page < pages; page += 1) {
    const start = page * page_bytes;
    const content = bytes.subarray(start, Math.min(start + page_bytes, limit));
    const expected = bytes.subarray(hashes + page * hash_bytes, hashes + (page + 1) * hash_bytes);
    const found = new Bun.CryptoHasher("sha256").update(content).digest();
    if (Buffer.compare(expected, found) !== 0) fail(`page ${page} of ${pages} has another hash`);
  }
}
