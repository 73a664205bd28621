// The check of the signature of a macOS binary, with a small file of the same format.
import { expect, test } from "bun:test";
import { requireAdHocSignature } from "../../scripts/release/signature.ts";

const PAGE_BYTES = 4096;
const CODE_BYTES = 2 * PAGE_BYTES + 100;
const PAGES = 3;
const DIRECTORY_BYTES = 44;
const BLOB_BYTES = 20 + DIRECTORY_BYTES + PAGES * 32;

/** @returns a header, one load command and code, followed by their signature */
function makeProgram(flags = 2): Uint8Array {
  const bytes = new Uint8Array(CODE_BYTES + BLOB_BYTES).fill(7, 48, CODE_BYTES);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, 0xfeedfacf, true);
  view.setUint32(16, 1, true);
  for (const [index, word] of [0x1d, 16, CODE_BYTES, BLOB_BYTES].entries()) {
    view.setUint32(32 + 4 * index, word, true);
  }
  const directory = CODE_BYTES + 20;
  const header = [0xfade0cc0, BLOB_BYTES, 1, 0, 20];
  const args = [0xfade0c02, DIRECTORY_BYTES + PAGES * 32, 0x20400, flags, DIRECTORY_BYTES];
  for (const [index, word] of [...header, ...args].entries()) {
    view.setUint32(CODE_BYTES + 4 * index, word);
  }
  view.setUint32(directory + 28, PAGES);
  view.setUint32(directory + 32, CODE_BYTES);
  bytes.set([32, 2, 0, 12], directory + 36);
  for (let page = 0; page < PAGES; page += 1) {
    // The last page is not padded.
    const content = bytes.subarray(
      page * PAGE_BYTES,
      Math.min((page + 1) * PAGE_BYTES, CODE_BYTES),
    );
    const hash = new Bun.CryptoHasher("sha256").update(content).digest();
    bytes.set(hash, directory + DIRECTORY_BYTES + 32 * page);
  }
  return bytes;
}

function changed(at: number): Uint8Array {
  const bytes = makeProgram();
  bytes[at] = (bytes[at] ?? 0) ^ 1;
  return bytes;
}

test("`requireAdHocSignature` passes when every hash matches its page", () => {
  expect(() => requireAdHocSignature(makeProgram())).not.toThrow();
});

test.each([
  ["a byte of the first page has changed", changed(100), "page 0 of 3"],
  ["the last byte of the code has changed", changed(CODE_BYTES - 1), "page 2 of 3"],
  ["the last hash has changed", changed(CODE_BYTES + BLOB_BYTES - 1), "page 2 of 3"],
  ["there is no signature", changed(32), "there is none"],
  ["the binary is not for macOS", changed(0), "this is not a macOS binary"],
  ["it is signed with a certificate", makeProgram(0), "it is not ad hoc"],
  ["data follows the signature", Uint8Array.of(...makeProgram(), 0), "something follows it"],
])("`requireAdHocSignature` throws when %s", (_what, bytes, reason) => {
  expect(() => requireAdHocSignature(bytes)).toThrow(reason);
});
