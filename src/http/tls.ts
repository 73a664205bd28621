/** The certificate of the server. */
import { createSecureContext } from "node:tls";
import { fail, fileProblem, messageOf } from "../base/error.ts";
import type { Config } from "../domain/config.ts";

/** Options of Bun's server; `tls` is missing without a certificate. */
export type Tls = Pick<Bun.Serve.Options<unknown>, "tls">;

/** @throws {AppError} operator */
async function readPem(variable: string, path: string): Promise<string> {
  try {
    // A pipe could be read without end.
    const file = Bun.file(path);
    if ((await file.stat()).isFIFO()) fail("operator", "it is a pipe");
    return await file.text();
  } catch (error) {
    const problem = fileProblem(error) ?? messageOf(error);
    return fail("operator", `Cannot read ${variable}: ${path}: ${problem}`);
  }
}

/** Reads the files of the settings. @throws {AppError} operator if they cannot be used */
export async function readTls({ tlsCert, tlsKey }: Config): Promise<Tls> {
  if (tlsCert === null || tlsKey === null) return {};
  const cert = await readPem("TLS_CERT", tlsCert);
  const key = await readPem("TLS_KEY", tlsKey);
  try {
    // As the server does it. An empty text would count as none, but not in an array.
    createSecureContext({ cert: [cert], key: [key] });
  } catch {
    const files = `TLS_CERT ${tlsCert} and TLS_KEY ${tlsKey}`;
    fail("operator", `Cannot use ${files}: they are not a PEM certificate and its key`);
  }
  return { tls: { cert, key } };
}
