/**
 * A proxy in front of a database: holds back what clients send, so that each round trip takes longer.
 * bun delay.ts PORT TARGET_PORT DELAY_MS
 */
import { connect, createServer } from "node:net";

const [port, targetPort, delayMs] = Bun.argv.slice(2).map(Number);

createServer({ noDelay: true }, (client) => {
  const database = connect({ host: "127.0.0.1", port: Number(targetPort), noDelay: true });
  client.on("data", (data) => setTimeout(() => database.write(data), delayMs));
  database.pipe(client);
  client.on("close", () => database.destroy());
  database.on("close", () => client.destroy());
  client.on("error", () => database.destroy());
  database.on("error", () => client.destroy());
}).listen(port, "127.0.0.1", () => console.log("listening"));
