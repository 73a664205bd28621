// What clients and operators see when the certificate of PostgreSQL cannot be verified.
import { test as anyTest, expect } from "bun:test";
import { chownSync, renameSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createToken, startReplica } from "../http/server.ts";
import { findPrograms, type Instance, makeInstance, runOn } from "../postgres/instance.ts";
import { makeDirectory, type TemporaryDirectory } from "../support/directory.ts";
import { possible, runCommand } from "./pair.ts";

const fixtures = `${import.meta.dir}/../fixtures`;
const programs = possible ? findPrograms() : null;
const test = anyTest.if(programs !== null);

/** @returns the URL of a server for clients that trust both certificates */
async function trustingUrlOf({ url }: Instance, directory: TemporaryDirectory): Promise<string> {
  const trusted = ["localhost.crt", "elsewhere.crt"];
  const texts = await Promise.all(trusted.map((name) => Bun.file(`${fixtures}/${name}`).text()));
  writeFileSync(directory.at("ca.pem"), texts.join(""));
  const search = `?sslmode=verify-full&sslrootcert=${directory.at("ca.pem")}&max=1`;
  return Object.assign(new URL(url), { hostname: "localhost", search }).href;
}

async function present({ data }: Instance, certificate: string): Promise<void> {
  const { uid, gid } = statSync(data);
  for (const [name, source] of [
    ["server.crt", certificate],
    ["server.key", "localhost.key"],
  ] as const) {
    const path = join(data, name);
    writeFileSync(path, await Bun.file(`${fixtures}/${source}`).bytes(), { mode: 0o600 });
    chownSync(path, uid, gid);
  }
}

async function reload({ url }: Instance): Promise<void> {
  await runOn(
    url,
    "select pg_reload_conf()",
    "select pg_terminate_backend(pid) from pg_stat_activity where application_name like 'user-api%'",
  );
}

test("requests return 503, and the log has the reason, while the certificate of the server is wrong", async () => {
  using directory = makeDirectory();
  await using instance = makeInstance(programs ?? "", { fsync: "off", ssl: "on" });
  await present(instance, "localhost.crt");
  await instance.start();
  const database = await trustingUrlOf(instance, directory);
  const token = await createToken(database, "laptop", "write");
  await using server = await startReplica(database, {}, { writeToken: token, readToken: token });
  const body = { email: "ann@example.com" };
  expect((await server.call("POST", "/users", { body })).status).toBe(201);

  async function until(isDone: (status: number) => boolean): Promise<void> {
    for (;;) {
      // The server reads the file at some time after the request to do so, and closes connections before.
      await reload(instance);
      const { status } = await server.call("GET", "/users/1");
      expect([200, 503]).toContain(status);
      if (isDone(status)) return;
      await Bun.sleep(20);
    }
  }
  const problem = "Hostname/IP does not match certificate's altnames";
  const reason = `the database is currently unreachable: ${problem}`;
  await present(instance, "elsewhere.crt");
  await until(() => server.output.includes(reason));
  const { status, json, headers } = await server.call("GET", "/users");
  const error = "the database is currently unreachable";
  expect([status, json.error, headers.get("retry-after")]).toEqual([503, error, "2"]);
  const lines = server.output.split("\n").filter((line) => line.includes(reason));
  expect(JSON.parse(lines[0] ?? "").reason).toBe(reason);
  const expectNotOpened = async (message: RegExp) =>
    expect(await runCommand(database, "check")).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(message),
    });
  await expectNotOpened(/: the certificate of the server cannot be verified: .+\n$/);
  await present(instance, "localhost.crt");
  await until((status) => status === 200);
  renameSync(directory.at("ca.pem"), directory.at("away.pem"));
  await until((status) => status === 503);
  await expectNotOpened(/: the sslrootcert file does not exist or cannot be read\n$/);
  renameSync(directory.at("away.pem"), directory.at("ca.pem"));
  await until((status) => status === 200);
}, 180_000);
