// Readers of the change feed, each with connections that break, while records change and the service is killed: no
// change is missing or twice, and none was made up.
import { describe, expect, test } from "bun:test";
import type { Change } from "../../src/change.ts";
import { newToken } from "../../src/token.ts";
import { makeDirectory } from "../directory.ts";
import { sendCall } from "../http/server.ts";
import { withStore } from "../open-store.ts";
import { binary, type Running, runBinary, startProgram } from "../program.ts";

/** How long records change: `CHANGES_MODEL_SECONDS` for a longer run. */
const SECONDS = Number(Bun.env["CHANGES_MODEL_SECONDS"] ?? 8);
const WRITERS = 8;
const READERS = 3;
const KILL_MS = 1_500;

interface Written {
  /** `user 1 v2`, of writes with a successful response. */
  readonly acknowledged: Set<string>;
  /** Records whose last write had no response. */
  readonly inDoubt: Set<string>;
}

const nameOf = (table: string, id: number) => `${table === "users" ? "user" : "order"} ${id}`;
const recordOf = ({ type, record_id }: Change) => `${type.split(".")[0]} ${record_id}`;

describe.skipIf(binary === "")("the change feed", () => {
  test(
    "has each change once, in order, for every reader when the service is killed again and again",
    async () => {
      using directory = makeDirectory();
      const token = newToken();
      const environment = {
        DATABASE_URL: directory.at("a.db"),
        API_TOKEN: token,
        PORT: "0",
        LOG_LEVEL: "info",
      };
      let running: Running = startProgram([binary, "serve"], { env: environment });
      let url = (await running.listening) ?? "";
      const endMs = performance.now() + SECONDS * 1000;
      const isOver = () => performance.now() > endMs;
      const written: Written = { acknowledged: new Set(), inDoubt: new Set() };

      async function killAgainAndAgain(): Promise<void> {
        while (!isOver()) {
          await Bun.sleep(Math.random() * KILL_MS);
          running.kill("SIGKILL");
          await running.ended;
          running = startProgram([binary, "serve"], { env: environment });
          url = (await running.listening) ?? "";
        }
      }

      /** @returns the record of a successful response; `null` without a response, or if the record has no such change */
      async function write(method: string, path: string, body?: object): Promise<any> {
        const [, table = "", id] = path.split("/");
        try {
          const options = body === undefined ? {} : { body };
          const { status, json } = await sendCall(url, token, method, path, options);
          if (status >= 300) return null;
          const { data } = json;
          const type = method === "DELETE" ? "deleted" : "";
          written.acknowledged.add(`${nameOf(table, data.id)} v${data.version}${type}`);
          return data;
        } catch {
          written.inDoubt.add(id === undefined ? `new ${table}` : nameOf(table, Number(id)));
          await Bun.sleep(5);
          return null;
        }
      }

      async function changeRecords(): Promise<void> {
        while (!isOver()) {
          const user = await write("POST", "/users", { email: `${crypto.randomUUID()}@b.cd` });
          if (user === null) continue;
          await write("PATCH", `/users/${user.id}`, { name: "Ann" });
          await write("PATCH", `/users/${user.id}`, {});
          if (Math.random() < 0.3) {
            await write("DELETE", `/users/${user.id}`);
            continue;
          }
          const items = [{ sku: "A", quantity: 1, unit_price: 1 }];
          const order = await write("POST", "/orders", {
            user_id: user.id,
            currency: "EUR",
            items,
          });
          if (order === null) continue;
          await write("PATCH", `/orders/${order.id}`, { status: "paid" });
          await write("PATCH", `/orders/${order.id}`, { status: "shipped" });
        }
      }

      async function importRecords(): Promise<void> {
        for (let round = 0; !isOver(); round += 1) {
          const lines = Array.from({ length: 300 }, (_, at) =>
            JSON.stringify({ email: `import-${round}-${at}@b.cd` }),
          );
          await Bun.write(directory.at("users.ndjson"), `${lines.join("\n")}\n`);
          await runBinary(["import", "users", directory.at("users.ndjson")], environment);
          await Bun.sleep(300);
        }
      }

      /** Reads every change up to the last one, by following links. @returns them */
      async function follow(untilId: () => number | null): Promise<Change[]> {
        const changes: Change[] = [];
        let next = `/changes?after=0&limit=${1 + Math.floor(Math.random() * 100)}&wait=1`;
        while (untilId() === null || changes.length < (untilId() ?? 0)) {
          const signal = AbortSignal.timeout(Math.random() < 0.2 ? 3 : 10_000);
          const headers = { authorization: `Bearer ${token}` };
          try {
            const response = await fetch(`${url}/api/v1${next}`, { headers, signal });
            const { data } = (await response.json()) as { data: Change[] };
            expect(response.status).toBe(200);
            changes.push(...data);
            const link = response.headers.get("link") ?? "";
            next = /<\/api\/v1([^>]*)>; rel="next"/.exec(link)?.[1] ?? "";
          } catch (error) {
            // Only a broken connection may keep a reader from its page.
            if (!(error instanceof Error) || error.message.includes("toBe")) throw error;
            await Bun.sleep(5);
          }
        }
        return changes;
      }

      let last: number | null = null;
      const readers = Array.from({ length: READERS }, () => follow(() => last));
      const killer = killAgainAndAgain();
      await Promise.all([
        killer,
        importRecords(),
        ...Array.from({ length: WRITERS }, changeRecords),
      ]);
      last = (await sendCall(url, token, "GET", "/changes?limit=1", {})).json.meta.last;
      const all = await Promise.all(readers);
      running.kill("SIGTERM");
      await running.ended;
      const findings = await withStore(environment.DATABASE_URL, (store) => store.check());
      expect(findings).toEqual([]);

      const [changes = []] = all;
      expect(changes.map(({ id }) => id)).toEqual(
        Array.from({ length: last ?? 0 }, (_, at) => at + 1),
      );
      for (const other of all) expect(Bun.deepEquals(other, changes)).toBe(true);

      const versions = new Map<string, number>();
      const seen = new Set<string>();
      for (const change of changes) {
        const record = recordOf(change);
        const isDeletion = change.type === "user.deleted";
        expect(change.version).toBe((versions.get(record) ?? 0) + (isDeletion ? 0 : 1));
        versions.set(record, change.version);
        seen.add(`${record} v${change.version}${isDeletion ? "deleted" : ""}`);
      }
      // A PATCH that changes nothing has the version of the change before.
      expect([...written.acknowledged].filter((one) => !seen.has(one))).toEqual([]);
      const unexplained = changes.filter((change) => {
        const record = recordOf(change);
        const isDeletion = change.type === "user.deleted";
        const one = `${record} v${change.version}${isDeletion ? "deleted" : ""}`;
        const isNew = change.type.endsWith("created");
        const doubt = isNew ? `new ${change.type.split(".")[0]}s` : record;
        return (
          change.token !== null && !written.acknowledged.has(one) && !written.inDoubt.has(doubt)
        );
      });
      expect(unexplained).toEqual([]);
      expect(changes.length).toBeGreaterThan(300);
    },
    (SECONDS + 60) * 1000,
  );
});
