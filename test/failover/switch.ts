/** A TCP proxy in front of a server, as an operator of a standby has one. */
import { type AddressInfo, createConnection, createServer, type Socket } from "node:net";

interface Switch extends AsyncDisposable {
  /** @returns the URL with the host and port of the proxy */
  through(url: string): string;
  /** Closes all connections. New ones go to the server of this URL. */
  pointAt(url: string): void;
  /** Loses the packets of all connections, which stay open. New ones work. */
  losePackets(): void;
}

export async function startSwitch(url: string): Promise<Switch> {
  let target = new URL(url);
  const sockets = new Set<Socket>();

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
    client.pipe(upstream).pipe(client);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    through: (database) => Object.assign(new URL(database), { host: `127.0.0.1:${port}` }).href,
    pointAt(next) {
      target = new URL(next);
      closeConnections();
    },
    losePackets() {
      for (const socket of sockets) socket.unpipe();
    },
    async [Symbol.asyncDispose]() {
      server.close();
      closeConnections();
    },
  };
}
