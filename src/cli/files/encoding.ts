import { fail } from "../../base/error.ts";

/** The first bytes of a ZIP archive, which `.xlsx`, `.ods` and `.numbers` are. */
const ZIP = Buffer.from("PK\x03\x04");

/** @returns the number of line feeds before the first byte that is not UTF-8. @param chunk may begin in a character */
function linesBeforeInvalid(chunk: Uint8Array): number {
  const start = chunk.findIndex((byte) => (byte & 0xc0) !== 0x80);
  const text = new TextDecoder().decode(chunk.subarray(Math.max(0, start)));
  return text.slice(0, Math.max(0, text.indexOf("\ufffd"))).split("\n").length - 1;
}

/** What spreadsheets of Windows write as CSV. Any bytes are text in the second one. */
export type Encoding = "utf-8" | "windows-1252";

export async function encodingOf(input: AsyncIterable<Uint8Array>): Promise<Encoding> {
  const utf8 = new TextDecoder("utf-8", { fatal: true });
  try {
    for await (const chunk of input) utf8.decode(chunk, { stream: true });
    utf8.decode();
    return "utf-8";
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    return "windows-1252";
  }
}

/** A byte order mark stays for spreadsheets. @throws {AppError} validation_failed, with the line, if it is not UTF-8 */
export async function* decodeText(
  input: AsyncIterable<Uint8Array>,
  encoding: Encoding = "utf-8",
): AsyncGenerator<string> {
  const decoder = new TextDecoder(encoding, { fatal: true, ignoreBOM: true });
  let line = 1;
  let chunk: Uint8Array = new Uint8Array();
  try {
    for await (chunk of input) {
      if (line === 1 && Buffer.from(chunk.subarray(0, 4)).equals(ZIP))
        fail(
          "validation_failed",
          "it is a spreadsheet or another ZIP archive: save it as CSV UTF-8",
        );
      const text = decoder.decode(chunk, { stream: true });
      yield text;
      for (let at = text.indexOf("\n"); at !== -1; at = text.indexOf("\n", at + 1)) line += 1;
    }
    chunk = new Uint8Array();
    decoder.decode();
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    line += linesBeforeInvalid(chunk);
    const advice =
      "save it as CSV UTF-8, decompress it, e.g. with zcat, or convert it, e.g. with iconv -f WINDOWS-1252 -t UTF-8";
    fail("validation_failed", `line ${line} is no text in UTF-8: ${advice}`);
  }
}
