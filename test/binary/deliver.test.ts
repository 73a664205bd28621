import { expect } from "bun:test";
import { newUser } from "../http/make.ts";
import { startServer } from "../http/server.ts";
import { makeDirectory } from "../support/directory.ts";
import { binary, startProgram } from "../support/program.ts";
import { secrets, startReceiver } from "../support/webhook-receiver.ts";
import { test } from "./on-binary.ts";

test("deliver sends every change at least once and in order when it is killed 20 times, and a third of the requests fail", async () => {
  await using server = await startServer();
  using directory = makeDirectory();
  for (let at = 0; at < 50; at += 1) await newUser(server);
  const failures = [500, Response.redirect("/"), null, 204];
  let [kills, kill] = [0, (_: "SIGKILL" | "SIGTERM") => {}];
  using receiver = startReceiver(({ attempt, data }) => {
    if (data.id === 50) kill("SIGTERM");
    if (attempt % 3 !== 0 || kills === 20) return 204;
    kill("SIGKILL");
    kills += 1;
    return failures[kills % failures.length] ?? null;
  });
  await Bun.write(directory.at("token"), server.readToken);
  await Bun.write(directory.at("secret"), secrets.join("\n"));
  const files = ["--token-file", "token", "--secret-file", "secret", "--position", "position"];
  const command = [binary, "deliver", "--from", server.url, "--to", receiver.url, ...files];
  for (let start = ["--start", "0"], code = 137; code !== 0; start = []) {
    const running = startProgram([...command, ...start], { cwd: directory.path });
    kill = running.kill;
    code = (await running.ended).code;
    expect([0, 137]).toContain(code);
  }
  const ids = receiver.ids();
  expect([kills, receiver.invalid, new Set(ids).size]).toEqual([20, [], 50]);
  expect(ids).toEqual(ids.toSorted((one, other) => one - other));
  const position = await Bun.file(directory.at("position")).text();
  expect(position).toBe(`${receiver.accepted.at(-1)?.id}\n`);
  expect([...new Bun.Glob("*.partial").scanSync(directory.path)]).toEqual([]);
});
