// Stops the program while clients use it: what is in flight is answered, nothing acknowledged is lost,
// and nobody gets an error that was not announced.
import { expect, test } from "bun:test";
import { connect, type Socket } from "node:net";
import { newEmail } from "../http/make.ts";
import { against_binary, startServer, type TestServer } from "../http/server.ts";

interface Connection {
  send(text: string): void;
  /** All that has come, once it matches; or all there is when the server has closed. */
  until(pattern: RegExp): Promise<string>;
  readonly closed: Promise<void>;
}

function open(server: TestServer): Promise<Connection> {
  const { promise, resolve, reject } = Promise.withResolvers<Connection>();
  const { port } = new URL(server.url);
  let received = "";
  const socket: Socket = connect(Number(port), "127.0.0.1", () =>
    resolve({
      send: (text) => socket.write(text),
      async until(pattern) {
        while (!pattern.test(received) && !socket.closed) await Bun.sleep(2);
        return received;
      },
      closed: new Promise((done) => socket.on("close", () => done())),
    }),
  );
  socket.on("data", (data) => {
    received += data.toString();
  });
  socket.on("error", reject);
  return promise;
}

function request(server: TestServer, method: string, path: string, body = ""): string {
  const lines = [
    `${method} /api/v1${path} HTTP/1.1`,
    "Host: a",
    `Authorization: Bearer ${server.write_token}`,
  ];
  if (body !== "") lines.push("Content-Type: application/json", `Content-Length: ${body.length}`);
  return `${lines.join("\r\n")}\r\n\r\n${body}`;
}

test.if(against_binary)(
  "`SIGTERM` turns health to 503 and closes connections with their next answer",
  async () => {
    await using server = await startServer({ SHUTDOWN_SECONDS: "30" });
    const [health, reader, writer] = await Promise.all([open(server), open(server), open(server)]);
    health.send(request(server, "GET", "/health"));
    expect(await health.until(/ok/)).not.toMatch(/connection: close/i);
    reader.send(request(server, "GET", "/users"));
    await reader.until(/"meta"/);
    const post = request(server, "POST", "/users", JSON.stringify({ email: newEmail() }));
    writer.send(post.slice(0, -5));
    // One more exchange, so that the half of a request has arrived.
    reader.send(request(server, "GET", "/orders"));
    await reader.until(/"meta".*"meta"/s);
    const stopped = server.stop("SIGTERM");
    while (!server.output.includes('"stopping"')) await Bun.sleep(1);
    health.send(request(server, "GET", "/health"));
    const answers = await health.until(/HTTP.*HTTP.*error/s);
    expect(answers).toMatch(/HTTP\/1\.1 503.*about to end/s);
    expect(answers).toMatch(/connection: close/i);
    await health.closed;
    while ((await open(server).catch(() => null)) !== null) await Bun.sleep(2);
    writer.send(post.slice(-5));
    const created = await writer.until(/"created_at"/);
    expect(created).toStartWith("HTTP/1.1 201");
    expect(created).toMatch(/connection: close/i);
    await Promise.all([writer.closed, reader.closed, stopped]);
  },
);

test.if(against_binary)(
  "`SIGTERM` cuts what is unfinished when SHUTDOWN_SECONDS are over",
  async () => {
    await using server = await startServer({ SHUTDOWN_SECONDS: "1" });
    const writer = await open(server);
    writer.send(request(server, "POST", "/users", '{"email":"a@b.cd"}').slice(0, -5));
    await server.stop("SIGTERM");
    await writer.closed;
    expect(await writer.until(/^$/)).toBe("");
    await server.restart();
    expect((await server.call("GET", "/users")).json.meta.total).toBe(0);
  },
);

test.if(against_binary)(
  "`SIGTERM` loses nothing and brings no error when clients go as they are told",
  async () => {
    await using server = await startServer();
    const acknowledged: string[] = [];
    const statuses = new Set<number>();
    // 200 writes a second; as a load balancer does, each goes elsewhere when its connection is to close.
    const clients = Array.from({ length: 8 }, async () => {
      for (let going = true; going; await Bun.sleep(35)) {
        const email = newEmail();
        const { status, headers } = await server.call("POST", "/users", { body: { email } });
        statuses.add(status);
        if (status === 201) acknowledged.push(email);
        going = headers.get("connection") !== "close";
      }
    });
    await Bun.sleep(1000);
    await server.stop("SIGTERM");
    await Promise.all(clients);
    expect([...statuses]).toEqual([201]);
    expect(acknowledged.length).toBeGreaterThan(100);
    await server.restart();
    const { json } = await server.call("GET", "/users?limit=1000");
    const stored = new Set(json.data.map(({ email }: { email: string }) => email));
    expect(acknowledged.filter((email) => !stored.has(email))).toEqual([]);
  },
);
