// The server reads a renewed certificate, and keeps the previous one if the new files cannot be used.
import { expect } from "bun:test";
import { once } from "node:events";
import { copyFileSync, writeFileSync } from "node:fs";
import { connect, type TLSSocket } from "node:tls";
import { newEmail } from "../http/make.ts";
import { rawRequest } from "../http/raw.ts";
import { startServer, type TestServer } from "../http/server.ts";
import { makeDirectory, type TemporaryDirectory } from "../support/directory.ts";
import { isLong } from "../support/long.ts";
import { test, testIf } from "./on-binary.ts";

const fixtures = `${import.meta.dir}/../fixtures`;

function copyCertificate(directory: TemporaryDirectory, name: string): void {
  for (const suffix of ["crt", "key"])
    copyFileSync(`${fixtures}/${name}.${suffix}`, directory.at(`tls.${suffix}`));
}

/** @returns the settings of a server whose certificate can be replaced */
function makeCertificate(directory: TemporaryDirectory) {
  copyCertificate(directory, "localhost");
  return { TLS_CERT: directory.at("tls.crt"), TLS_KEY: directory.at("tls.key") };
}

async function openTls(server: TestServer): Promise<TLSSocket> {
  const port = Number(new URL(server.url).port);
  const socket = connect({ port, host: "127.0.0.1", rejectUnauthorized: false });
  await once(socket, "secureConnect");
  return socket.on("error", () => {});
}

/** Sends requests until the server announces the end of the connection. One that has just connected can be closed. */
async function sendRequests(server: TestServer, isOver: () => boolean): Promise<void> {
  const socket = await openTls(server);
  const send = () => socket.write("GET /api/v1/health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  send();
  let [response, responses] = ["", 0];
  try {
    for await (const data of socket) {
      response += data;
      if (!response.endsWith("}")) continue;
      if (isOver() || /^connection: close/im.test(response)) return;
      [response, responses] = ["", responses + 1];
      send();
    }
    throw new Error("closed before a response");
  } catch (error) {
    if (responses > 1) throw new Error("closed while in use", { cause: error });
  }
}

async function commonName(server: TestServer): Promise<unknown> {
  const socket = await openTls(server);
  const { subject } = socket.getPeerCertificate();
  socket.destroy();
  return subject.CN;
}

/** The server may have found the files already. */
const done = /"certificate reloaded"|"nothing to reload"/;

async function hangUp(server: TestServer, line: RegExp): Promise<void> {
  const before = server.output.length;
  process.kill(server.pid ?? 0, "SIGHUP");
  while (!line.test(server.output.slice(before))) await Bun.sleep(2);
}

test("SIGHUP changes the certificate of new connections and completes requests in flight", async () => {
  using directory = makeDirectory();
  await using server = await startServer(makeCertificate(directory));
  const writer = await openTls(server);
  let received = "";
  writer.on("data", (data) => {
    received += data;
  });
  const token = server.writeToken;
  const json = JSON.stringify({ email: newEmail() });
  const post = rawRequest("POST", "/api/v1/users", { token, json, keepAlive: true });
  writer.write(post.slice(0, -5));
  expect(await commonName(server)).toBe("localhost");

  copyCertificate(directory, "renewed");
  await hangUp(server, done);
  expect(await commonName(server)).toBe("renewed");
  writer.write(post.slice(-5));
  while (!received.includes("created_at")) await Bun.sleep(2);
  expect(received).toStartWith("HTTP/1.1 201");

  writeFileSync(directory.at("tls.crt"), "");
  await hangUp(server, /"certificate not reloaded".*not a PEM certificate and its key/);
  expect(await commonName(server)).toBe("renewed");
  expect(await server.stop("SIGTERM")).toBe(0);
  while (!writer.closed) await Bun.sleep(2);
});

/** On other systems, new connections are refused for some milliseconds. */
const canTakeOver = process.platform === "linux";

testIf(canTakeOver)("SIGHUP refuses no connection, and closes none in use", async () => {
  using directory = makeDirectory();
  await using server = await startServer(makeCertificate(directory));
  const names = new Set<unknown>();
  let reloads = 0;
  const renewals = Array<string[]>(isLong ? 4 : 1)
    .fill(["renewed", "localhost"])
    .flat();
  const isOver = () => reloads === renewals.length;
  const expectReset = ({ message, code }: NodeJS.ErrnoException) =>
    expect([message, code]).toEqual([message, "ECONNRESET"]);
  async function connectAll(): Promise<void> {
    const connect = async () => names.add(await commonName(server));
    while (!isOver()) await connect().catch(expectReset);
  }
  async function stayConnected(): Promise<void> {
    while (!isOver()) await sendRequests(server, isOver).catch(expectReset);
  }
  const clients = [connectAll, stayConnected].flatMap((use) => [use(), use(), use(), use()]);
  const reloading = async () => {
    for (const name of renewals) {
      copyCertificate(directory, name);
      await hangUp(server, done);
      expect(await commonName(server)).toBe(name);
      reloads += 1;
    }
  };
  await Promise.all([reloading(), ...clients]);
  expect([...names].toSorted()).toEqual(["localhost", "renewed"]);
});
