import { X509Certificate } from "node:crypto";
import { createSecureContext } from "node:tls";
import { fail, fileProblem, messageOf } from "../../base/error.ts";
import type { Validity } from "../../base/expiry.ts";
import { readSettingFile } from "../../base/secret.ts";
import type { Config } from "../../domain/config.ts";

/** Options of Bun's server; `tls` is missing without a certificate. */
export type Tls = { readonly tls?: { readonly cert: string; readonly key: string } };

/** @returns that of the first certificate; `null` without TLS. Clients may not need those after it, as an expired root */
export function validityOf({ tls }: Tls): Validity | null {
  if (tls === undefined) return null;
  const { validFrom, validTo } = new X509Certificate(tls.cert);
  return { startMs: Date.parse(validFrom), endMs: Date.parse(validTo) };
}

function readPem(variable: string, path: string): string {
  try {
    return readSettingFile(path);
  } catch (error) {
    const problem = fileProblem(error) ?? messageOf(error);
    return fail("operator", `Cannot read ${variable}: ${path}: ${problem}`);
  }
}

/** @throws {AppError} operator if the files cannot be used */
export function readTls({ tlsCert, tlsKey }: Config): Tls {
  if (tlsCert === null || tlsKey === null) return {};
  const cert = readPem("TLS_CERT", tlsCert);
  const key = readPem("TLS_KEY", tlsKey);
  try {
    // As the server does it. An empty text would count as none, but not in an array.
    createSecureContext({ cert: [cert], key: [key] });
  } catch {
    const files = `TLS_CERT ${tlsCert} and TLS_KEY ${tlsKey}`;
    fail("operator", `Cannot use ${files}: they are not a PEM certificate and its key`);
  }
  return { tls: { cert, key } };
}
