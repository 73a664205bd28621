/** A TCP proxy in front of a server, as an operator of a standby has one. */
import { type AddressInfo, createConnection, createServer, type Socket } from "node:net";

export async function startSwitch(url: string) {
  let target = new URL(url);
  const sockets = new Set<Socket>();
  let losing: string | null = null;

  function closeConnections(): void {
    for (const socket of sockets) socket.destroy();
  }

  const server = createServer((client) => {
    const upstream = createConnection(Number(target.port), target.hostname);
    const pair = [client, upstream];
    for (const socket of pair) {
      sockets.add(socket);
      // `close` follows.
      socket.on("error", () => {});
      socket.on("close", () => {
        sockets.delete(socket);
        for (const other of pair) other.destroy();
      });
    }
    client.on("data", (sent) => {
      if (losing === null || !sent.includes(losing)) return;
      losing = null;
      upstream.unpipe();
      // The response is so small that the server sends it in one piece, after the commit.
      upstream.once("data", () => client.destroy()).resume();
    });
    client.pipe(upstream).pipe(client);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    through: (database: string) =>
      Object.assign(new URL(database), { host: `127.0.0.1:${port}` }).href,
    /** New connections go to the server of this URL. @param keep whether the others stay; by default they are closed */
    pointAt(next: string, keep = false): void {
      target = new URL(next);
      if (!keep) closeConnections();
    },
    /** Loses the packets of all connections, which stay open. New ones work. */
    losePackets(): void {
      for (const socket of sockets) socket.unpipe();
    },
    /** Loses the response to the next message with this text, and closes its connection. */
    loseResponseTo(text: string): void {
      losing = text;
    },
    async [Symbol.asyncDispose]() {
      server.close();
      closeConnections();
    },
  };
}
